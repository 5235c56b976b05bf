-- Gives one acquisition back; with the last one of a hold the head of the line gets the key.
--
-- ARGV  2 owner  3 claim  4 token  5 who gives, for the next one to read  6... the raw key of each resource
-- Returns the wake names of parked waiters that were granted a key.
-- True  only owner, claim and token together give anything: a late give touches no successor's hold. Given twice it
--       counts once, and the second time still answers whom the first has granted.
-- Cost  O(keys), and O(log line) for a hand-off.
local OWNER, CLAIM, TOKEN = ARGV[2], ARGV[3], ARGV[4]
local FIELD = 't:' .. TOKEN

local wakes = {}
for i = 1, COUNT do
  local r = resource(i, ARGV[5 + i])
  local hold = redis.call('HMGET', r.hold, 'owner', 'claim', FIELD, 'count', 'state', 'from', 'wake')
  if hold[1] == OWNER and hold[2] == CLAIM and hold[3] then
    if tonumber(hold[4]) > 1 then
      redis.call('HDEL', r.hold, FIELD)
      redis.call('HINCRBY', r.hold, 'count', -1)
    else
      add_wake(wakes, release(r, TOKEN, ARGV[5]))
    end
  elseif hold[5] == 'granted' and hold[6] == TOKEN then
    add_wake(wakes, hold[7])
  end
end
return wakes
