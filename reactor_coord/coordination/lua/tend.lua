-- Looks after one resource whose hold or grant should have lapsed: the net under the releases.
--
-- ARGV  2 token of this request  3 the raw key
-- Returns {wake names, ms until the next look, 0: nothing is left to look after}
-- True  a key is granted only when nobody has it. Not a release: who passed it on for another busy key, and will be
--       woken by that one, is not asked again.
-- Cost  O(log line).
local r = resource(1, ARGV[3])
local hold = redis.call('HMGET', r.hold, 'state', 'from', 'wake')
local wakes = {}
if not hold[1] then
  add_wake(wakes, hand_on(r, ARGV[2], '', round_of(r)))
elseif hold[1] == 'granted' and hold[2] == ARGV[2] then
  add_wake(wakes, hold[3])
end
local left = redis.call('PTTL', r.hold)
if left >= 0 then
  left = math.max(left, 1) -- it may end within this ms
  index_at(r, NOW + left)
elseif redis.call('EXISTS', r.line) == 1 then
  left = IDLE_LOOK
else
  left = 0
end
return { wakes, left }
