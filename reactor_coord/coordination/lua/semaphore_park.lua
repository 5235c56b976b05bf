-- A living process's slot becomes one that is kept for its owner while it is parked elsewhere.
--
-- ARGV  2 owner  3 claim  4 token  5 horizon ms: how long it is kept  6 the raw key
-- Returns {1}, or {0}: lost before it could be parked.
-- True  from now on any claim of this owner may adopt it; nobody renews it. Parked again it is kept for the longer time.
-- Cost  O(log slots).
local OWNER, CLAIM, TOKEN, HORIZON = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local r = resource(1, ARGV[6])

local slots = slots_of(r, OWNER)
for _, slot in ipairs(slots) do
  local left = lease_left(OWNER, slot)
  if slot.claim == CLAIM and slot.tokens[TOKEN] and left > 0 then
    if slot.state == 'parked' then HORIZON = math.max(HORIZON, left) end
    slot.state = 'parked'
    write_slots(r, OWNER, slots)
    lease(OWNER, slot, NOW + HORIZON)
    settle(r)
    keep_line(r)
    return { 1 }
  end
end
return { 0 }
