-- What every take shares: who asks, and how one who is refused stands in line.
--
-- ARGV  2 token  3 owner  4 claim  5 ttl ms  6 mode: join | try | last (refused: leave the lines)  7 waiter id or ''
--       8 wake name or ''  9 inbox key or ''  10 ms from now at which an inbox is dead  11 priority
--       12 info  13 how many may wait in a line, 0: any number  14... the raw key of each resource
local TOKEN, OWNER, CLAIM, TTL, MODE, ID = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]
local FIELD = 't:' .. TOKEN
local MAX_WAITING = tonumber(ARGV[13])

local function join(r, is_busy)
  local waiter = read_waiter(r, ID)
  if not waiter then
    waiter = { ticket = redis.call('HINCRBY', r.meta, 'ticket', 1), lapses = 0, since = NOW }
  end
  waiter.owner, waiter.wake, waiter.inbox, waiter.priority = OWNER, ARGV[8], ARGV[9], tonumber(ARGV[11])
  waiter.info = ARGV[12]
  if ARGV[9] ~= '' then waiter.deadline = NOW + tonumber(ARGV[10]) end
  if is_busy then
    waiter.passed = nil
  else
    waiter.passed = round_of(r) -- it could have this key and has no use for it: another is busy
  end
  stand_in_line(r, ID, waiter)
  note_wait(r, OWNER, ID)
  redis.call('PEXPIRE', r.meta, KEEP)
  keep_line(r)
end

local function by_whom()
  local execution = string.match(ARGV[12], '^[^\31]*')
  return execution ~= '' and execution or OWNER
end

-- Whether I would be one too many in this line. Who has a ticket already is none too many.
local function is_full(r)
  if MAX_WAITING == 0 or MODE ~= 'join' or redis.call('ZCARD', r.line) < MAX_WAITING then return false end
  if redis.call('HEXISTS', r.waiters, ID) == 1 then return false end
  for _, id in ipairs(redis.call('ZRANGE', r.line, 0, -1)) do
    if is_dead(read_waiter(r, id)) then
      redis.call('ZREM', r.line, id)
      redis.call('HDEL', r.waiters, id)
    end
  end
  return redis.call('ZCARD', r.line) >= MAX_WAITING
end
