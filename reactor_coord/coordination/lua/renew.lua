-- Prolongs a lease, or only looks whether it still stands.
--
-- ARGV  2 owner  3 claim  4 token  5 ttl ms, 0 to look only  6... the raw key of each resource
-- Returns for each resource the ms until its lease lapses, or -1: lost.
-- True  only owner, claim and token together renew. A lease is never shortened. A parked hold is left as it is.
-- Cost  O(keys).
local OWNER, CLAIM, FIELD, TTL = ARGV[2], ARGV[3], 't:' .. ARGV[4], tonumber(ARGV[5])

local left = {}
for i = 1, COUNT do
  local r = resource(i, ARGV[5 + i])
  local hold = redis.call('HMGET', r.hold, 'owner', 'claim', FIELD, 'state')
  if hold[1] == OWNER and hold[2] == CLAIM and hold[3] then
    left[i] = redis.call('PTTL', r.hold)
    if TTL > left[i] and hold[4] == 'held' then
      left[i] = TTL
      redis.call('PEXPIRE', r.hold, TTL)
      index_at(r, NOW + TTL)
      keep_line(r)
    end
  else
    left[i] = -1
  end
end
return left
