-- Starts per window: looked at, planned, charged, given back. All windows of a declaration at once, or none.
--
-- KEYS  1 state   hash  fixed windows: "<window>:<bucket>" -> starts charged and planned in it; latest (planned ms);
--                  from (ms at which the search for a free slot begins: the latest, or an earlier one given back);
--                  windows (algorithm, and limit and ms of each, as last asked for: for people who look)
--       2 plans   hash  who -> "<ms of the slot that is its own>:<windows it counts in, ms,ms or none if sliding>"
--       3 starts  zset  "s:<token>" -> ms of a start, "p:<who>" -> ms of a planned one
--       4 index   zset  of all limits: raw key -> ms after which nothing of it is left
-- ARGV  1 mode: look | charge | cancel (needs no windows)  2 who  3 token  4 algorithm: fixed_window | sliding_window
--       5 grace ms for which a slot waits for its owner  6 '1' to plan a slot when refused  7 the raw key
--       8... limit and period in ms of each window
-- Returns {1, 0, 0, now}, or {0, ms of its slot (or of the first free time, when not planned), number planned, now}
-- True  no window ever counts more than its limit; first come, first served; a refused look or charge spends nothing;
--       the same token is charged once, and a look with it passes then. Times are the server's.
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

local COUNTED_IN = '' -- the windows in which a plan of now is counted
if not SLIDING then
  local periods = {}
  for w = 1, #LIMITS do periods[w] = int(PERIODS[w]) end
  COUNTED_IN = table.concat(periods, ',')
end

local function plan_of(who)
  local plan = redis.call('HGET', KEYS[2], who)
  local slot, counted_in = string.match(plan or '', '^(%d+):?(.*)$')
  return tonumber(slot), counted_in
end

local function plan_member()
  return 'p:' .. WHO
end

local function count_start(at)
  if SLIDING then return end
  for w = 1, #LIMITS do redis.call('HINCRBY', KEYS[1], field(w, at), 1) end
end

local function plan(at)
  redis.call('HSET', KEYS[2], WHO, int(at) .. ':' .. COUNTED_IN)
  redis.call('ZADD', KEYS[3], int(at), plan_member())
end

-- It counts no more, in those windows in which it was counted: a deploy may have changed the declaration since.
local function forget_plan(who, slot, counted_in)
  redis.call('HDEL', KEYS[2], who)
  redis.call('ZREM', KEYS[3], 'p:' .. who)
  for period in string.gmatch(counted_in, '%d+') do
    local name = period .. ':' .. int(math.floor(slot / tonumber(period)))
    if redis.call('HINCRBY', KEYS[1], name, -1) <= 0 then redis.call('HDEL', KEYS[1], name) end
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
  at = math.max(at, tonumber(redis.call('HGET', KEYS[1], 'from') or 0))
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

-- Whether its time has come and is still its own: in the same buckets, which a deploy has not made smaller.
local function is_still_good(slot)
  if NOW > slot + GRACE then return false end
  if SLIDING then return true end
  for w = 1, #LIMITS do
    if bucket(w, slot) ~= bucket(w, NOW) or count(w, NOW) > LIMITS[w] then return false end
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
  redis.call('HSET', KEYS[1], 'windows', ALGORITHM .. ' ' .. table.concat(ARGV, ' ', 8))
  for i = 1, 3 do redis.call('PEXPIRE', KEYS[i], left) end
  redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', int(NOW))
  redis.call('ZADD', KEYS[4], int(NOW + left), ARGV[7])
  redis.call('PEXPIRE', KEYS[4], INDEX_KEEP)
end

local function drop_old()
  local before = NOW - GRACE - (SLIDING and LONGEST or REMEMBERED)
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', int(before), 'LIMIT', 0, 100)) do
    if string.sub(member, 1, 2) == 'p:' then -- nobody came for it
      local who = string.sub(member, 3)
      local at, counted_in = plan_of(who)
      if at then forget_plan(who, at, counted_in) end
    end
    redis.call('ZREM', KEYS[3], member)
  end
  if SLIDING or redis.call('HLEN', KEYS[1]) <= 4 * #LIMITS + 3 then return end
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
  else
    count_start(NOW)
  end
  redis.call('ZADD', KEYS[3], int(NOW), 's:' .. TOKEN)
  drop_old()
  keep()
  return answer(1, 0)
end

local function refuse(at)
  if PLANS then
    count_start(at)
    plan(at)
    if not SLIDING then
      local latest = math.max(at, tonumber(redis.call('HGET', KEYS[1], 'latest') or 0))
      redis.call('HSET', KEYS[1], 'latest', int(latest), 'from', int(at))
    end
    keep()
  end
  return answer(0, at)
end

local slot, counted_in = plan_of(WHO)

if MODE == 'cancel' then
  if slot then
    forget_plan(WHO, slot, counted_in)
    local from = tonumber(redis.call('HGET', KEYS[1], 'from') or 0)
    if slot < from then redis.call('HSET', KEYS[1], 'from', int(slot)) end -- whoever comes next has its place
  end
  return answer(1, 0)
end

if TOKEN ~= '' and redis.call('ZSCORE', KEYS[3], 's:' .. TOKEN) then
  return answer(1, 0)
end

if slot and (counted_in ~= COUNTED_IN or (NOW >= slot and not is_still_good(slot))) then
  forget_plan(WHO, slot, counted_in) -- it came too late, or asks for other windows: it asks anew
  slot = nil
end

if slot then
  if NOW < slot then return answer(0, slot) end
  local at = room_for_owner(slot)
  if at > NOW then
    plan(at)
    return answer(0, at)
  end
  if MODE == 'look' then return answer(1, 0) end
  return charge(slot)
end

local at = first_free()
if at > NOW then return refuse(at) end
if MODE == 'look' then return answer(1, 0) end
return charge(nil)
