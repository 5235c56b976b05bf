-- An operator takes a slot away from the holder that was shown, and from no other.
--
-- ARGV  2 fence of that slot  3 who does it, for the next one to read  4 the raw key
-- Returns {1, wakes}, or {0, {}}: that slot is gone.
-- True  no other slot is touched. The old holder learns of it at its next renewal.
-- Cost  O(slots + log line).
local r = resource(1, ARGV[4])
local from = 'force:' .. ARGV[2]
local wakes, done = {}, 0

clear_lapsed(r)
local all = redis.call('HGETALL', r.hold)
for at = 1, #all, 2 do
  local slots = cjson.decode(all[at + 1])
  for i = #slots, 1, -1 do
    if slots[i].fence == ARGV[2] then
      done = 1
      free_slot(r, all[at], slots, i)
    end
  end
end
if done == 0 then add_granted_before(r, from, wakes) end
if #wakes > 0 then done = 1 end
hand_out(r, known_limit(r), from, ARGV[3], wakes)
settle(r)
return { done, wakes }
