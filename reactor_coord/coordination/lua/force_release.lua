-- An operator takes a key away from the holder that was shown, and from no other.
--
-- ARGV  2 fence of that hold  3 who does it, for the next one to read  4 the raw key
-- Returns {1, wakes}, or {0, {}}: that hold is gone.
-- True  a hold with another fence is not touched. The old holder learns of it at its next renewal.
-- Cost  O(log line).
local r = resource(1, ARGV[4])
local from = 'force:' .. ARGV[2]
local hold = redis.call('HMGET', r.hold, 'fence', 'state', 'from', 'wake')
local wakes = {}
if hold[1] == ARGV[2] then
  add_wake(wakes, release(r, from, ARGV[3]))
  return { 1, wakes }
end
if hold[2] == 'granted' and hold[3] == from then
  add_wake(wakes, hold[4])
  return { 1, wakes }
end
return { 0, wakes }
