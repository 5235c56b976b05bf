-- A living process's hold becomes one that is kept for its owner while it is parked elsewhere.
--
-- ARGV  2 owner  3 claim  4 token  5 horizon ms: how long it is kept  6... the raw key of each resource
-- Returns for each resource 1, or 0: lost before it could be parked.
-- True  from now on any claim of this owner may adopt it; nobody renews it. Parked again it is kept for the longer time.
-- Cost  O(keys).
local OWNER, CLAIM, FIELD, HORIZON = ARGV[2], ARGV[3], 't:' .. ARGV[4], tonumber(ARGV[5])

local parked = {}
for i = 1, COUNT do
  local r = resource(i, ARGV[5 + i])
  local hold = redis.call('HMGET', r.hold, 'owner', 'claim', FIELD, 'state')
  if hold[1] == OWNER and hold[2] == CLAIM and hold[3] then
    local lease = HORIZON
    if hold[4] == 'parked' then lease = math.max(lease, redis.call('PTTL', r.hold)) end
    redis.call('HSET', r.hold, 'state', 'parked')
    redis.call('PEXPIRE', r.hold, lease)
    index_at(r, NOW + lease)
    keep_line(r)
    parked[i] = 1
  else
    parked[i] = 0
  end
end
return parked
