-- Prolongs the lease of a slot, or only looks whether it still stands.
--
-- ARGV  2 owner  3 claim  4 token  5 ttl ms, 0 to look only  6 the raw key
-- Returns {ms until its lease lapses, or -1: lost}
-- True  only owner, claim and token together renew. A lease is never shortened. A parked slot is left as it is.
-- Cost  O(log slots).
local OWNER, CLAIM, TOKEN, TTL = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local r = resource(1, ARGV[6])

for _, slot in ipairs(slots_of(r, OWNER)) do
  if slot.claim == CLAIM and slot.tokens[TOKEN] then
    local left = lease_left(OWNER, slot)
    if left > 0 and TTL > left and slot.state == 'held' then
      left = TTL
      lease(OWNER, slot, NOW + TTL)
      settle(r)
      keep_line(r)
    end
    return { left > 0 and left or -1 }
  end
end
return { -1 }
