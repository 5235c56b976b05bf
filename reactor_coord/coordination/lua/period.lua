-- Which buckets of a key are marked: looked at, marked, and a mark taken back.
--
-- KEYS  1 marks  hash  bucket -> JSON {runs, at, ends_at}, seconds; runs: the successes in it, first first, each
--                      <execution>/<step> or the owner of a call of its own. EXPIREAT: the last bucket's end, and what it is
--                      kept beyond
--       2 index  zset  of all periods: raw key -> ms until which a mark of it is kept
-- ARGV  1 mode  then, by mode:
--       look    2 ms from which the first bucket is known  then of each, one after the other: ms at which it ends, its name
--       mark    2 the raw key  3 bucket  4 run  5 ends_at in seconds  6 seconds a mark is kept beyond its bucket
--       unmark  2 the raw key  3 run (its success was undone; in whatever bucket it was)
--       free    2 the raw key  3 bucket  4 by whom it was seen to be marked (the execution, or owner, of the first run)
-- Returns look: {1, number of the present bucket (from 1)}, {0, that number, its mark}, or {0, 0} when it is none of these.
--         mark: nothing. unmark: the number of buckets in which the run was. free: 1, or 0 when the bucket is free, or the
--         first run in it is of another.
-- True  a bucket lists each run once, and is free when none is left. A run takes back its own alone, however often it does.
--       Marks long over are dropped on the way.
-- Cost  look O(buckets named), mark and unmark O(marks kept), free O(1).
local function runs_of(mark)
  return mark.runs or { mark.by } -- {by, at, ends_at} is how a mark was kept before it listed its runs
end

if ARGV[1] == 'look' then
  if NOW < tonumber(ARGV[2]) then return { 0, 0 } end
  for at = 3, #ARGV, 2 do
    if NOW < tonumber(ARGV[at]) then
      local mark = redis.call('HGET', KEYS[1], ARGV[at + 1])
      local number = (at - 1) / 2
      return mark and { 0, number, mark } or { 1, number }
    end
  end
  return { 0, 0 }
end

local function forget_if_none()
  if redis.call('EXISTS', KEYS[1]) == 0 then redis.call('ZREM', KEYS[2], ARGV[2]) end
end

if ARGV[1] == 'free' then
  local packed = redis.call('HGET', KEYS[1], ARGV[3])
  if not packed or string.match(runs_of(cjson.decode(packed))[1], '^[^/]*') ~= ARGV[4] then return 0 end
  redis.call('HDEL', KEYS[1], ARGV[3])
  forget_if_none()
  return 1
end

if ARGV[1] == 'unmark' then
  local found, marks = 0, redis.call('HGETALL', KEYS[1])
  for i = 1, #marks, 2 do
    local mark, left = cjson.decode(marks[i + 1]), {}
    local runs = runs_of(mark)
    for _, run in ipairs(runs) do
      if run ~= ARGV[3] then left[#left + 1] = run end
    end
    if #left < #runs then found = found + 1 end
    if #left == 0 then
      redis.call('HDEL', KEYS[1], marks[i])
    elseif #left < #runs then
      redis.call('HSET', KEYS[1], marks[i], cjson.encode({ runs = left, at = mark.at, ends_at = mark.ends_at }))
    end
  end
  forget_if_none()
  return found
end

local now, ends_at, afterlife = math.floor(NOW / 1000), tonumber(ARGV[5]), tonumber(ARGV[6])
local known = redis.call('HGET', KEYS[1], ARGV[3])
local mark = known and cjson.decode(known) or { runs = {}, at = now, ends_at = ends_at }
local runs, is_listed = runs_of(mark), false
for _, run in ipairs(runs) do is_listed = is_listed or run == ARGV[4] end
if not is_listed then
  runs[#runs + 1] = ARGV[4]
  redis.call('HSET', KEYS[1], ARGV[3], cjson.encode({ runs = runs, at = mark.at, ends_at = mark.ends_at }))
end
local lasts = ends_at
local marks = redis.call('HGETALL', KEYS[1])
for i = 1, #marks, 2 do
  local ends = cjson.decode(marks[i + 1]).ends_at
  if ends + afterlife < now then redis.call('HDEL', KEYS[1], marks[i]) end
  lasts = math.max(lasts, ends)
end
lasts = math.floor(lasts + afterlife)
redis.call('EXPIREAT', KEYS[1], int(lasts))
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', int(NOW))
redis.call('ZADD', KEYS[2], int(lasts * 1000), ARGV[2])
redis.call('PEXPIRE', KEYS[2], INDEX_KEEP)
return ''
