-- Out of the line; a grant that was on its way goes to the next.
--
-- ARGV  2 owner  3 waiter id  4 what: line | parked (what the owner has parked as
--       well) | aside (it keeps its ticket)  5 who leaves, for the next one to
--       read  6 token of this request  7... the raw key of each resource
-- Returns the wake names of parked waiters that were granted a key.
-- True  nobody who left is granted anything later. What is held by a living claim is not touched.
-- Cost  O(keys), and O(log line) each.
local OWNER, ID, PARKED_TOO, BY, TOKEN = ARGV[2], ARGV[3], ARGV[4] == 'parked', ARGV[5], ARGV[6]

local wakes = {}
for i = 1, COUNT do
  local r = resource(i, ARGV[6 + i])
  leave_line(r, OWNER, ID, ARGV[4] == 'aside')
  local hold = redis.call('HMGET', r.hold, 'owner', 'state', 'waiter', 'from', 'wake')
  if hold[1] == OWNER and hold[2] == 'granted' and hold[3] == ID then
    forgive(r, ID)
    add_wake(wakes, hand_on(r, TOKEN, BY, round_of(r)))
  elseif hold[1] == OWNER and hold[2] == 'parked' and PARKED_TOO then
    add_wake(wakes, release(r, TOKEN, BY))
  elseif hold[2] == 'granted' and hold[4] == TOKEN then
    add_wake(wakes, hold[5])
  elseif not hold[1] and redis.call('EXISTS', r.line) == 0 then
    redis.call('ZREM', KEYS[1], r.raw)
  end
end
return wakes
