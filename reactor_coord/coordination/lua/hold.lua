-- What every script of the lock shares beside the line: one hold for each key, and handing it to the head of the line.
--
--   hold     hash  owner claim state fence since count info granted_at released_by, a field t:<token> for every
--                  acquisition that counts; of a grant also waiter, wake, from.  PEXPIRE: the lease
local COUNT = (#KEYS - 1) / 5

-- The hold is over: the head of the line has it now, or nobody. Returns the wake name of a parked head, else ''.
-- `from` marks the grant with who caused it, so that a retry whose first reply was lost still learns whom to wake.
local function hand_on(r, from, by, round)
  redis.call('DEL', r.hold)
  local id, waiter = first_waiter(r, round)
  if not id then
    if redis.call('EXISTS', r.line) == 1 then
      index_at(r, NOW + IDLE_LOOK)
    else
      redis.call('ZREM', KEYS[1], r.raw)
    end
    return ''
  end
  local grace = offer(r, id, waiter)
  redis.call('HSET', r.hold, 'owner', waiter.owner, 'claim', '', 'state', 'granted', 'fence', next_fence(r.fence),
    'since', int(NOW), 'count', '0', 'info', waiter.info, 'granted_at', int(NOW), 'released_by', by, 'waiter', id,
    'wake', waiter.wake, 'from', from)
  redis.call('PEXPIRE', r.hold, grace)
  index_at(r, NOW + grace)
  return tell(r, waiter, grace)
end

-- A release: a new round, in which everybody may be offered the key again.
local function release(r, from, by)
  local round = 0
  if redis.call('EXISTS', r.line) == 1 then
    round = redis.call('HINCRBY', r.meta, 'round', 1)
  end
  return hand_on(r, from, by, round)
end
