-- Gives one acquisition back; with the last one of a slot the head of the line gets it.
--
-- ARGV  2 owner  3 claim  4 token  5 who gives, for the next one to read  6 the raw key
-- Returns the wake names of parked waiters that were granted a slot.
-- True  only owner, claim and token together give anything: a late give frees no successor's slot, and so never one too
--       many. Given twice it counts once, and the second time still answers whom the first has granted.
-- Cost  O(log slots + log line); given twice O(slots).
local OWNER, CLAIM, TOKEN = ARGV[2], ARGV[3], ARGV[4]
local r = resource(1, ARGV[6])
local wakes = {}

clear_lapsed(r)
local slots, given = slots_of(r, OWNER), false
for i = #slots, 1, -1 do
  local slot = slots[i]
  if slot.claim == CLAIM and slot.tokens[TOKEN] then
    given, slot.tokens[TOKEN] = true, nil
    if next(slot.tokens) then
      write_slots(r, OWNER, slots)
    else
      free_slot(r, OWNER, slots, i)
    end
  end
end
if not given then add_granted_before(r, TOKEN, wakes) end
hand_out(r, known_limit(r), TOKEN, ARGV[5], wakes)
settle(r)
return wakes
