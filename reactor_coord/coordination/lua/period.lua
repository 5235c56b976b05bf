-- Which buckets of a key are marked: looked at, and marked.
--
-- KEYS  1 marks  hash  bucket -> JSON {by, at, ends_at}, seconds
--       2 index  zset  of all periods: raw key -> ms until which a mark of it is kept
-- ARGV  1 mode  then, by mode:
--       look  2 ms from which the first bucket is known  then of each, one after the other: ms at which it ends, its name
--       mark  2 the raw key  3 bucket  4 by  5 ends_at in seconds  6 seconds a mark is kept beyond its bucket
-- Returns look: {1, number of the present bucket (from 1)}, {0, that number, its mark}, or {0, 0} when it is none of these.
--         mark: nothing.
-- True  a bucket is marked once: who marked it first stays. Marks long over are dropped on the way.
-- Cost  look O(buckets named), mark O(marks kept).
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

local now, ends_at, afterlife = math.floor(NOW / 1000), tonumber(ARGV[5]), tonumber(ARGV[6])
redis.call('HSETNX', KEYS[1], ARGV[3], cjson.encode({ by = ARGV[4], at = now, ends_at = ends_at }))
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
