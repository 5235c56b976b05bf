-- Starts per window: looked at, planned, charged, given back. All windows of a declaration at once, or none.
--
-- KEYS  1 state   hash  fixed windows: "<window>:<bucket>" -> starts charged and planned in it; latest (planned ms)
--       2 plans   hash  who -> ms of the slot that is its own
--       3 starts  zset  "s:<token>" -> ms of a start, "p:<who>" -> ms of a planned one (sliding windows only)
--       4 index   zset  of all limits: raw key -> ms after which nothing of it is left
-- ARGV  1 mode: look | charge | cancel  2 who  3 token  4 algorithm: fixed_window | sliding_window
--       5 grace ms for which a slot waits for its owner  6 '1' to plan a slot when refused  7 the raw key
--       8... limit and period in ms of each window
-- Returns {1, 0, 0, now}, or {0, ms of its slot (or of the first free time, when not planned), number planned, now}
-- True  no window ever counts more than its limit; first come, first served; a refused look or charge spends nothing;
--       the same token is charged once. Times are the server's.
-- Cost  O(windows) for fixed, O(log starts) for sliding ones; what is past every window is dropped on the way.
local MODE, WHO, TOKEN, ALGORITHM, GRACE, PLANS = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6] == '1'
local LIMITS, PERIODS, LONGEST = {}, {}, 0
for at = 8, #ARGV, 2 do
  LIMITS[#LIMITS + 1], PERIODS[#PERIODS + 1] = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  LONGEST = math.max(LONGEST, PERIODS[#PERIODS])
end
local REMEMBERED = 60000 -- ms for which a fixed window knows a token again
local SLIDING = ALGORITHM == 'sliding_window'

local function bucket(w, at)
  return math.floor(at / PERIODS[w])
end

local function field(w, at)
  return int(PERIODS[w]) .. ':' .. int(bucket(w, at))
end

local function count(w, at)
  return tonumber(redis.call('HGET', KEYS[1], field(w, at)) or 0)
end

local function planned()
  local slot = redis.call('HGET', KEYS[2], WHO)
  return slot and tonumber(slot)
end

local function plan_member()
  return 'p:' .. WHO
end

local function note_start(at, member)
  if SLIDING then
    redis.call('ZADD', KEYS[3], int(at), member)
  else
    for w = 1, #LIMITS do redis.call('HINCRBY', KEYS[1], field(w, at), 1) end
  end
end

local function forget_plan(slot)
  redis.call('HDEL', KEYS[2], WHO)
  if SLIDING then
    redis.call('ZREM', KEYS[3], plan_member())
  else
    for w = 1, #LIMITS do
      if redis.call('HINCRBY', KEYS[1], field(w, slot), -1) <= 0 then redis.call('HDEL', KEYS[1], field(w, slot)) end
    end
  end
end

-- The first time at which every window has room behind all that is charged and planned.
local function first_free()
  local at = NOW
  if SLIDING then
    for w = 1, #LIMITS do
      local entry = redis.call('ZRANGE', KEYS[3], -LIMITS[w], -LIMITS[w], 'WITHSCORES')
      if entry[2] then at = math.max(at, tonumber(entry[2]) + PERIODS[w]) end
    end
    local last = redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
    return last[2] and math.max(at, tonumber(last[2])) or at
  end
  at = math.max(at, tonumber(redis.call('HGET', KEYS[1], 'latest') or 0))
  local moved = true
  while moved do
    moved = false
    for w = 1, #LIMITS do
      if count(w, at) >= LIMITS[w] then
        at, moved = (bucket(w, at) + 1) * PERIODS[w], true
      end
    end
  end
  return at
end

-- When a slot's owner may start: now, or a little later where an earlier one came late.
local function room_for_owner(slot)
  local at = NOW
  if SLIDING then
    for w = 1, #LIMITS do
      local before = redis.call('ZRANGEBYSCORE', KEYS[3], int(NOW - PERIODS[w] + 1), int(NOW), 'WITHSCORES')
      local inside = {}
      for i = 1, #before, 2 do
        if before[i] ~= plan_member() and string.sub(before[i], 1, 2) == 's:' then inside[#inside + 1] = tonumber(before[i + 1]) end
      end
      if #inside >= LIMITS[w] then at = math.max(at, inside[#inside - LIMITS[w] + 1] + PERIODS[w]) end
    end
  end
  return at
end

local function same_buckets(slot)
  if SLIDING then return true end
  for w = 1, #LIMITS do
    if bucket(w, slot) ~= bucket(w, NOW) then return false end
  end
  return true
end

local function keep()
  local last = NOW
  local ends = redis.call('HGET', KEYS[1], 'latest')
  if ends then last = math.max(last, tonumber(ends)) end
  local entry = SLIDING and redis.call('ZRANGE', KEYS[3], -1, -1, 'WITHSCORES')
  if entry and entry[2] then last = math.max(last, tonumber(entry[2])) end
  local left = math.ceil(last - NOW + 2 * LONGEST + GRACE + 60000)
  for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], left) end
  redis.call('ZADD', KEYS[4], int(NOW + left), ARGV[7])
  redis.call('PEXPIRE', KEYS[4], INDEX_KEEP)
end

local function drop_old()
  if SLIDING then
    redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', int(NOW - LONGEST - GRACE))
    return
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', int(NOW - REMEMBERED))
  if redis.call('HLEN', KEYS[1]) <= 4 * #LIMITS + 1 then return end
  for _, name in ipairs(redis.call('HKEYS', KEYS[1])) do
    local period, number = string.match(name, '^(%d+):(%d+)$')
    if period and (tonumber(number) + 1) * tonumber(period) < NOW - GRACE then redis.call('HDEL', KEYS[1], name) end
  end
end

local function answer(passed, at)
  return { passed, int(at), redis.call('HLEN', KEYS[2]), int(NOW) }
end

local function charge(slot)
  if slot then
    redis.call('HDEL', KEYS[2], WHO)
    redis.call('ZREM', KEYS[3], plan_member())
  elseif not SLIDING then
    note_start(NOW)
  end
  redis.call('ZADD', KEYS[3], int(NOW), 's:' .. TOKEN)
  drop_old()
  keep()
  return answer(1, 0)
end

local function refuse(at)
  if PLANS then
    note_start(at, plan_member())
    if not SLIDING then redis.call('HSET', KEYS[1], 'latest', int(at)) end
    redis.call('HSET', KEYS[2], WHO, int(at))
    keep()
  end
  return answer(0, at)
end

local slot = planned()

if MODE == 'cancel' then
  if slot then forget_plan(slot) end
  return answer(1, 0)
end

if MODE == 'charge' and redis.call('ZSCORE', KEYS[3], 's:' .. TOKEN) then
  return answer(1, 0)
end

if slot and (NOW > slot + GRACE or not same_buckets(slot)) and NOW >= slot then
  forget_plan(slot) -- it came too late: it asks anew
  slot = nil
end

if slot then
  if NOW < slot then return answer(0, slot) end
  local at = room_for_owner(slot)
  if at > NOW then
    redis.call('HSET', KEYS[2], WHO, int(at))
    redis.call('ZADD', KEYS[3], int(at), plan_member())
    return answer(0, at)
  end
  if MODE == 'look' then return answer(1, 0) end
  return charge(slot)
end

local at = first_free()
if at > NOW then return refuse(at) end
if MODE == 'look' then return answer(1, 0) end
return charge(nil)
