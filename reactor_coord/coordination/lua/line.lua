-- What every script with holders and a line shares, whatever the primitive: the index, the line, and whose turn it is.
--
-- A resource is keys of one hash tag, each with an expiry:
--   hold     hash  who has it: see hold.lua for the lock, slots.lua for the semaphore
--   line     zset  waiter id -> -priority * 2^36 + ticket
--   waiters  hash  waiter id -> JSON {ticket, lapses, passed, owner, wake | inbox and deadline, since, ...}. An entry
--                  outlives its place in the line, so that who comes late keeps its ticket
--   meta     hash  ticket (last given); of a lock also round (releases so far), of a semaphore limit
--   fence    string  the last one given
-- Beside them, for whoever walks from owner to owner (see deadlock.py): hash <prefix>:waits:<owner>, primitive 0x1F raw key ->
-- waiter id. A hint, which the line has to confirm. In a cluster it lies in another slot, and is written by who walks.
-- info is execution, reactor and step, for people who look, and the ms to which a hold of it is renewed (0: never), with 0x1F
-- between them;
-- and there is one index for all of a primitive: zset raw key -> ms at which its hold lapses (or its line is worth a look).
--
-- KEYS[1] index; then hold, line, waiters, meta, fence of each resource.  ARGV[1] hand-off grace in ms.
local IDLE_LOOK = 30000       -- ms to the next look at a line in which nobody can use the key now
local LAPSES_AT_MOST = 8      -- a grant's grace doubles up to 2^8 times

local GRACE = tonumber(ARGV[1])

local function resource(i, raw)
  local at = 5 * i - 3
  return { hold = KEYS[at], line = KEYS[at + 1], waiters = KEYS[at + 2], meta = KEYS[at + 3],
    fence = KEYS[at + 4], raw = raw }
end

local function index_at(r, at)
  redis.call('ZADD', KEYS[1], int(at), r.raw)
  redis.call('PEXPIRE', KEYS[1], INDEX_KEEP)
end

local function keep_line(r)
  if redis.call('PEXPIRE', r.line, KEEP) == 1 then
    redis.call('PEXPIRE', r.meta, KEEP)
  end
  redis.call('PEXPIRE', r.waiters, KEEP)
end

local function round_of(r)
  return tonumber(redis.call('HGET', r.meta, 'round') or 0)
end

local function read_waiter(r, id)
  local packed = redis.call('HGET', r.waiters, id)
  return packed and cjson.decode(packed)
end

local function write_waiter(r, id, waiter)
  redis.call('HSET', r.waiters, id, cjson.encode(waiter))
end

local function stand_in_line(r, id, waiter)
  write_waiter(r, id, waiter)
  redis.call('ZADD', r.line, int(waiter.ticket - waiter.priority * 68719476736), id)
end

-- The record of what an owner waits for, and this resource's field in it; nil in a cluster.
local function record_of(r, owner)
  local prefix, primitive = string.match(KEYS[1], '^(.*):index:([^:}]*)$')
  if prefix then return prefix .. ':waits:' .. owner, primitive .. '\31' .. r.raw end
end

local function note_wait(r, owner, id)
  local record, field = record_of(r, owner)
  if record then
    redis.call('HSET', record, field, id)
    redis.call('PEXPIRE', record, KEEP)
  end
end

-- The owner's own waiter leaves: it waits here no more.
local function end_wait(r, owner, id)
  if redis.call('HDEL', r.waiters, id) == 1 then
    redis.call('ZREM', r.line, id)
    local record, field = record_of(r, owner)
    if record then redis.call('HDEL', record, field) end
  end
end

-- It came in time for what it was offered, whatever became of it.
local function forgive(r, id)
  local waiter = read_waiter(r, id)
  if waiter then
    waiter.lapses = waiter.lapses - 1
    write_waiter(r, id, waiter)
  end
end

-- With its ticket kept it can be granted nothing, and has its old place when it comes again.
local function leave_line(r, owner, id, keeps_ticket)
  if keeps_ticket then
    redis.call('ZREM', r.line, id)
  else
    end_wait(r, owner, id)
  end
end

-- Nobody sleeps on that inbox any more.
local function is_dead(waiter)
  return not waiter or (waiter.deadline and waiter.deadline < NOW)
end

-- The first in line who can use the key: dead inboxes are dropped on the way, those who passed in this round skipped.
local function first_waiter(r, round)
  local at = 0
  while true do
    local ids = redis.call('ZRANGE', r.line, at, at + 15)
    if #ids == 0 then return nil end
    for _, id in ipairs(ids) do
      local waiter = read_waiter(r, id)
      if is_dead(waiter) then
        redis.call('ZREM', r.line, id)
        redis.call('HDEL', r.waiters, id)
      elseif waiter.passed == round then
        at = at + 1
      else
        return id, waiter
      end
    end
  end
end

-- The waiter's turn has come: it leaves the line for the ms that are returned, in which it may come for what it is given.
local function offer(r, id, waiter)
  local grace = math.floor(GRACE * 2 ^ math.min(waiter.lapses, LAPSES_AT_MOST))
  waiter.lapses = waiter.lapses + 1 -- taken back when it comes in time
  write_waiter(r, id, waiter)
  redis.call('ZREM', r.line, id)
  keep_line(r)
  return grace
end

-- A blocking waiter is told in its inbox; of a parked one the wake name is returned, else ''.
local function tell(r, waiter, grace)
  if waiter.inbox == '' then return waiter.wake end
  redis.call('LPUSH', waiter.inbox, r.raw)
  redis.call('PEXPIRE', waiter.inbox, math.max(grace, waiter.deadline - NOW) + 1000)
  return ''
end

local function add_wake(wakes, wake)
  if wake and wake ~= '' then
    wakes[#wakes + 1] = wake
  end
end
