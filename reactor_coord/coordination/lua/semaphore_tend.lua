-- Looks after one semaphore of which a slot or a grant should have lapsed: the net under the releases.
--
-- ARGV  2 token of this request  3 the raw key
-- Returns {wake names, ms until the next look, 0: nothing is left to look after}
-- True  a slot is granted only when there is room under the limit that came last.
-- Cost  O(slots + log line).
local r = resource(1, ARGV[3])
local wakes = {}
clear_lapsed(r)
add_granted_before(r, ARGV[2], wakes)
hand_out(r, known_limit(r), ARGV[2], '', wakes)
return { wakes, settle(r) }
