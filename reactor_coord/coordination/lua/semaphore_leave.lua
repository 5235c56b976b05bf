-- Out of the line; a slot that was on its way goes to the next.
--
-- ARGV  2 owner  3 waiter id  4 what: line | parked (what the owner has parked as
--       well) | aside (it keeps its ticket)  5 who leaves, for the next one to
--       read  6 token of this request  7 the raw key
-- Returns the wake names of parked waiters that were granted a slot.
-- True  nobody who left is granted anything later. What is held by a living claim is not touched.
-- Cost  O(log slots + log line); without a slot to pass on O(slots).
local OWNER, ID, PARKED_TOO, BY, TOKEN = ARGV[2], ARGV[3], ARGV[4] == 'parked', ARGV[5], ARGV[6]
local r = resource(1, ARGV[7])
local wakes = {}

clear_lapsed(r)
leave_line(r, OWNER, ID, ARGV[4] == 'aside')
local slots, freed = slots_of(r, OWNER), false
for i = #slots, 1, -1 do
  local slot = slots[i]
  if (slot.state == 'granted' and slot.waiter == ID) or (slot.state == 'parked' and PARKED_TOO) then
    freed = true
    if slot.state == 'granted' then forgive(r, ID) end
    free_slot(r, OWNER, slots, i)
  end
end
if not freed then add_granted_before(r, TOKEN, wakes) end
hand_out(r, known_limit(r), TOKEN, BY, wakes)
settle(r)
return wakes
