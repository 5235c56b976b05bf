-- Takes all the keys or none; refused, stands in every line in the same step.
--
-- ARGV  as in arrival.lua
-- Returns {1, {how, fence, since, granted_at, released_by} of each}
--      or {0, first busy (from 1), its place or 0, number waiting, {its holder}, wakes, all busy, ms to the first lapse,
--          1 when a line was too long to join any, its holder's fence, 1}
--      holder: owner claim state fence since remaining_ms info count
-- Fails  when there is a hold without an owner: somebody may have it, so nobody is let in.
-- True  a key is mine when free, granted to my owner, parked by my owner, or held by my owner under my claim. The owner
--       alone opens nothing that is held. The same token counts once, however often it is sent. A lease is never
--       shortened. A refused waiter that was granted one of the keys passes it on and keeps its ticket; it is marked
--       so in that line (until the next release there), and unmarked where it was refused by that very key.
-- Cost  O(keys); refused, O(log line) each.
local function way_in(hold)
  local owner, claim, state = hold[1], hold[2], hold[3]
  if not owner then return 'free' end
  if owner ~= OWNER then return nil end
  if state == 'held' then return claim == CLAIM and 'reentered' or nil end
  return state
end

local resources, holds, ways, busy = {}, {}, {}, {}
for i = 1, COUNT do
  local r = resource(i, ARGV[13 + i])
  local hold = redis.call('HMGET', r.hold, 'owner', 'claim', 'state', 'fence', 'since', 'granted_at', 'released_by',
    'waiter', 'from', 'wake', FIELD)
  if not hold[1] and redis.call('EXISTS', r.hold) == 1 then
    return redis.error_reply('DAMAGED the hold of ' .. r.raw .. ' has no owner')
  end
  resources[i], holds[i], ways[i] = r, hold, way_in(hold)
  if not ways[i] then busy[#busy + 1] = i end
end

local function write_hold(r, fence, since, how)
  redis.call('HSET', r.hold, 'owner', OWNER, 'claim', CLAIM, 'state', 'held', 'fence', fence, 'since', since,
    'count', '1', 'info', ARGV[12], FIELD, how)
  redis.call('PEXPIRE', r.hold, TTL)
  index_at(r, NOW + TTL)
end

local function reenter(r, hold)
  local counted = hold[11] -- how this very request was answered before: its reply was lost
  if not counted then
    redis.call('HSET', r.hold, FIELD, 'reentered')
    redis.call('HINCRBY', r.hold, 'count', 1)
  end
  local lease = math.max(redis.call('PTTL', r.hold), TTL)
  redis.call('PEXPIRE', r.hold, lease)
  index_at(r, NOW + lease)
  if counted == 'granted' then return { counted, hold[4], hold[5], hold[6], hold[7] } end
  return { counted or 'reentered', hold[4], hold[5], '', '' }
end

local function take(r, hold, way)
  if way == 'reentered' then return reenter(r, hold) end
  local fence, since, granted_at, released_by = hold[4], int(NOW), '', ''
  if way == 'free' then
    fence = next_fence(r.fence)
  else
    redis.call('DEL', r.hold) -- and with it the tokens that were left behind
    if way == 'parked' then
      since = hold[5]
    else
      granted_at, released_by = hold[6], hold[7]
      end_wait(r, OWNER, hold[8])
    end
  end
  write_hold(r, fence, since, way)
  if way == 'granted' then
    redis.call('HSET', r.hold, 'granted_at', granted_at, 'released_by', released_by)
  end
  return { way, fence, since, granted_at, released_by }
end

if #busy == 0 then
  local taken = { 1 }
  for i = 1, COUNT do
    taken[i + 1] = take(resources[i], holds[i], ways[i])
    if ID ~= '' then end_wait(resources[i], OWNER, ID) end
  end
  if ARGV[9] ~= '' then redis.call('DEL', ARGV[9]) end
  return taken
end

-- My grant is of no use while another key is busy. Its waiter goes back to its place and is not asked in this round.
local function pass_on(r, hold)
  local id = hold[8]
  local waiter = read_waiter(r, id)
  if waiter then
    waiter.lapses, waiter.passed = waiter.lapses - 1, round_of(r)
    stand_in_line(r, id, waiter)
  end
  return hand_on(r, TOKEN, by_whom(), round_of(r))
end

local full
for i = 1, COUNT do
  if not full and is_full(resources[i]) then full = i end
end

local wakes = {}
for i = 1, COUNT do
  local r, hold, way = resources[i], holds[i], ways[i]
  if way == 'granted' then
    local wake = pass_on(r, hold)
    add_wake(wakes, wake)
  elseif hold[3] == 'granted' and hold[9] == TOKEN then
    add_wake(wakes, hold[10]) -- this very request passed it on before: its reply was lost
  end
  if MODE == 'join' and not full then
    join(r, not way)
    if way == 'free' then redis.call('ZADD', KEYS[1], 'NX', int(NOW + IDLE_LOOK), r.raw) end
  elseif MODE == 'last' and ID ~= '' then
    end_wait(r, OWNER, ID)
  end
end

local at = full or busy[1]
local first = resources[at]
local holder = redis.call('HMGET', first.hold, 'owner', 'claim', 'state', 'fence', 'since', 'state', 'info', 'count')
holder[6] = int(math.max(redis.call('PTTL', first.hold), 0))
local lapse = math.huge
for _, i in ipairs(busy) do
  lapse = math.min(lapse, math.max(redis.call('PTTL', resources[i].hold), 0))
end
local rank = ID ~= '' and redis.call('ZRANK', first.line, ID)
return { 0, at, rank and rank + 1 or 0, redis.call('ZCARD', first.line), holder, wakes, busy, int(lapse), full and 1 or 0,
  holder[4] or '0', 1 }
