-- What every script of the semaphore shares beside the line: its slots, and handing out those that are free.
--
--   hold     hash  owner -> JSON list of its slots {fence, claim, state, since, info, granted_at, released_by, limit, tokens
--                  {token -> how it was answered}; of a grant also waiter, wake, from}.  Mostly one; a second where a
--                  claim went and another came before the first one's lease was over
--   leases   zset  "<fence>|<owner>" -> ms at which that slot lapses. What is over counts for nothing
--   meta     also limit: the one the latest arrival brought, for whoever hands out next
--
-- KEYS[7] leases.
local LEASES = KEYS[7]

local function slots_of(r, owner)
  local packed = redis.call('HGET', r.hold, owner)
  return packed and cjson.decode(packed) or {}
end

local function write_slots(r, owner, slots)
  if #slots == 0 then
    redis.call('HDEL', r.hold, owner)
  else
    redis.call('HSET', r.hold, owner, cjson.encode(slots))
  end
end

local function lease(owner, slot, at)
  redis.call('ZADD', LEASES, int(at), slot.fence .. '|' .. owner)
end

-- The ms until it lapses; none or less: it is over.
local function lease_left(owner, slot)
  return tonumber(redis.call('ZSCORE', LEASES, slot.fence .. '|' .. owner) or 0) - NOW
end

local function free_slot(r, owner, slots, i)
  local slot = table.remove(slots, i)
  redis.call('ZREM', LEASES, slot.fence .. '|' .. owner)
  write_slots(r, owner, slots)
end

local function in_use()
  return redis.call('ZCARD', LEASES)
end

-- Slots whose lease is over are nobody's.
local function clear_lapsed(r)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', LEASES, '-inf', int(NOW))) do
    local fence, owner = string.match(member, '^(%d+)|(.*)$')
    local slots = slots_of(r, owner)
    for i = #slots, 1, -1 do
      if slots[i].fence == fence then free_slot(r, owner, slots, i) end
    end
    redis.call('ZREM', LEASES, member)
  end
end

local function known_limit(r)
  return tonumber(redis.call('HGET', r.meta, 'limit') or 0)
end

-- As many heads of the line as there is room for get a slot; those to be woken are added to `wakes`.
-- `from` marks the grants with who caused them, so that a retry whose first reply was lost still learns whom to wake.
local function hand_out(r, limit, from, by, wakes)
  if redis.call('EXISTS', r.line) == 0 then return end
  for _ = in_use() + 1, limit do
    local id, waiter = first_waiter(r, false)
    if not id then return end
    local grace = offer(r, id, waiter)
    local slots = slots_of(r, waiter.owner)
    local slot = { fence = next_fence(r.fence), claim = '', state = 'granted', since = int(NOW), info = waiter.info,
      granted_at = int(NOW), released_by = by, tokens = {}, waiter = id, wake = waiter.wake, from = from }
    slots[#slots + 1] = slot
    write_slots(r, waiter.owner, slots)
    lease(waiter.owner, slot, NOW + grace)
    add_wake(wakes, tell(r, waiter, grace))
  end
end

-- Whom an earlier sending of this request has granted a slot. O(slots), so only where nothing else was to do.
local function add_granted_before(r, from, wakes)
  local all = redis.call('HVALS', r.hold)
  for _, packed in ipairs(all) do
    for _, slot in ipairs(cjson.decode(packed)) do
      if slot.state == 'granted' and slot.from == from then add_wake(wakes, slot.wake) end
    end
  end
end

-- After every change: what is kept how long, and when to look again. Returns the ms until then; 0: nothing is left.
local function settle(r)
  local first = redis.call('ZRANGE', LEASES, 0, 0, 'WITHSCORES')[2]
  if first then
    local last = redis.call('ZRANGE', LEASES, -1, -1, 'WITHSCORES')[2]
    redis.call('PEXPIREAT', r.hold, int(last + 1000))
    redis.call('PEXPIREAT', LEASES, int(last + 1000))
    index_at(r, tonumber(first))
    return math.max(first - NOW, 1)
  end
  if redis.call('EXISTS', r.line) == 1 then
    index_at(r, NOW + IDLE_LOOK)
    return IDLE_LOOK
  end
  redis.call('ZREM', KEYS[1], r.raw)
  return 0
end
