// The scripts of a Redis harbour: each is one indivisible step, and may be repeated.
//
// docs/redis.md describes the keys. KEYS are the prefix and the host's part ("berth:",
// "berth:gpu07"), both as an ACL that allows ~berth:* has them; the database is one server's, not a
// cluster's.
#pragma once

#include <string>
#include <string_view>

namespace berth {

// Before each of them. Numbers are written by %.0f, since Lua would write large ones as 1.7e+15.
constexpr std::string_view kScriptPrologue = R"lua(
local prefix, part = string.sub(KEYS[1], 1, -2), KEYS[2]
local function key(name) return part .. ':' .. name end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local now_us = clock[1] * 1000000 + clock[2]
local function number(value) return string.format('%.0f', value) end
local function beat(id, ttl)
  redis.call('HSET', key('beats'), id, number(now + ttl))
  redis.call('SET', key('heard'), number(now))
end
local function ring(id, at)
  local bell = prefix .. ':ring:' .. id
  at = at or part
  -- Only of who is there: of who has left by now, nobody would ever take it away.
  if redis.call('ZSCORE', at .. ':queue', id) or redis.call('HEXISTS', at .. ':leases', id) == 1 then
    redis.call('HSETNX', at .. ':rung', id, number(now))
  end
  redis.call('LPUSH', bell, at)
  redis.call('LTRIM', bell, 0, 0)
  redis.call('EXPIRE', bell, 3600)
end
local function forget(id)
  redis.call('HDEL', key('beats'), id)
  redis.call('HDEL', key('rung'), id)
  redis.call('DEL', prefix .. ':ring:' .. id, prefix .. ':ended:' .. id)
end
-- A ticket leaves; the one behind it may now be first.
local function leave(id, at)
  local rank = redis.call('ZRANK', at .. ':queue', id)
  redis.call('ZREM', at .. ':queue', id)
  redis.call('HDEL', at .. ':tickets', id)
  redis.call('HDEL', at .. ':beats', id)
  redis.call('HDEL', at .. ':rung', id)
  local behind = rank and redis.call('ZRANGE', at .. ':queue', rank, rank)[1]
  if behind then ring(behind, at) end
end
local function version() return redis.call('GET', key('version')) or '0' end
local function next_epoch() return number(math.max((tonumber(version()) or 0) + 1, now_us)) end
-- The first ticket that can hear it: not one that is silent, nor one alone that was rung and does
-- not wake.
local function ring_front(grace)
  for _, id in ipairs(redis.call('ZRANGE', key('queue'), 0, 63)) do
    if (tonumber(redis.call('HGET', key('beats'), id)) or 0) + grace > now then
      local rung = redis.call('HGET', key('rung'), id)
      ring(id)
      if not rung or now - rung < 1000 then return end
    end
  end
end
)lua";

// Changes, all or none. ARGV: them as JSON; see StoreChange.
constexpr std::string_view kCommitScript = R"lua(
local o = cjson.decode(ARGV[1])
-- Who was silent for long when it was read, and was heard of since, is not dead.
local silent, woken = {}, false
for _, id in ipairs(o.silent) do
  -- As the client reads it: what is no number of milliseconds is no beat.
  local beat_ends = redis.call('HGET', key('beats'), id) or ''
  if #beat_ends > 15 or not string.match(beat_ends, '^%d+$') then beat_ends = 0 end
  silent[id] = beat_ends + o.grace <= now
  woken = woken or not silent[id]
end
-- One that arrives late must not undo what came after it.
if #o.drains + #o.undrains > 0 and version() ~= o.version then return {0} end
if o.lease and redis.call('HGET', key('leases'), o.id) ~= o.lease then
  -- A lease rests on all leases and drains; where its client was not in the queue, on that too.
  if version() ~= o.version or woken then return {0} end
  if redis.call('GET', prefix .. ':born') ~= o.born then return {0} end
  if (redis.call('GET', key('settles')) or '') ~= o.settled then return {0} end
  if o.tail and (redis.call('ZRANGE', key('queue'), -1, -1)[1] or '') ~= o.tail then return {0} end
  if redis.call('EXISTS', prefix .. ':ended:' .. o.id) == 1 then return {0} end
  if o.instead_of then
    -- Of a ticket that waits on several hosts, one is granted: who comes second finds it gone.
    if not redis.call('ZSCORE', key('queue'), o.instead_of) then return {0} end
    for _, host in ipairs(redis.call('HKEYS', prefix .. ':hosts')) do
      leave(o.instead_of, prefix .. ':' .. host)
    end
    leave(o.instead_of, part)
    redis.call('SET', prefix .. ':claim:' .. o.instead_of, o.host .. ' ' .. o.id, 'EX', 86400)
    ring(o.instead_of)
  end
  redis.call('SET', key('version'), o.epoch)
  redis.call('HSET', key('leases'), o.id, o.lease)
end
-- Above the epoch of what is put back, too: the clock of another server may be behind.
local function changed(epoch)
  redis.call('SET', key('version'), number(math.max(tonumber(next_epoch()), (epoch or 0) + 1)))
end
if o.lease then beat(o.id, o.ttl) end
for _, one in ipairs(o.put_back) do
  if redis.call('HSETNX', key('leases'), one[1], one[2]) == 1 then
    changed(tonumber(cjson.decode(one[2]).epoch))
  end
  redis.call('ZREM', key('queue'), one[1])
  redis.call('HDEL', key('tickets'), one[1])
  beat(one[1], o.ttl)
end
local order = ''
-- Not for who holds by now: a commit may arrive late.
if o.ticket and redis.call('HEXISTS', key('leases'), o.id) == 0 then
  redis.call('HSET', key('tickets'), o.id, o.ticket)
  order = redis.call('ZSCORE', key('queue'), o.id)
  if not order then
    order = o.order
    if not order then
      local last = tonumber(redis.call('GET', prefix .. ':order') or '0')
      if not (last and last < 1e15) then last = 0 end
      order = number(math.max(last + 1, now * 64))
      redis.call('SET', prefix .. ':order', order)
    end
    redis.call('ZADD', key('queue'), order, o.id)
  end
  beat(o.id, o.ttl)
end
if o.leave then
  redis.call('ZREM', key('queue'), o.id)
  redis.call('HDEL', key('tickets'), o.id)
end
for _, id in ipairs(o.beats) do
  if redis.call('HEXISTS', key('leases'), id) == 1 then beat(id, o.ttl) end
end
local removed = {}
for _, one in ipairs(o.remove) do
  if silent[one[1]] ~= false and redis.call('HGET', key('leases'), one[1]) == one[2] then
    redis.call('HDEL', key('leases'), one[1])
    forget(one[1])
    removed[#removed + 1] = one[1]
  end
end
for _, id in ipairs(o.remove_tickets) do
  if silent[id] ~= false then
    redis.call('ZREM', key('queue'), id)
    redis.call('HDEL', key('tickets'), id)
    forget(id)
  end
end
-- Tickets only: a lease is ended by its file on its host.
for _, id in ipairs(o.ended) do
  if redis.call('HEXISTS', key('leases'), id) == 0 then
    redis.call('SET', prefix .. ':ended:' .. id, '1', 'EX', 86400)
    redis.call('ZREM', key('queue'), id)
    redis.call('HDEL', key('tickets'), id)
    redis.call('HDEL', key('beats'), id)
    redis.call('HDEL', key('rung'), id)
  end
end
for _, one in ipairs(o.drains) do
  redis.call('HSET', key('drains'), one[1], one[2])
  changed()
end
for _, uuid in ipairs(o.undrains) do
  redis.call('HDEL', key('drains'), uuid)
  changed()
end
for _, id in ipairs(o.rings) do ring(id) end
return {1, order, removed}
)lua";

// A lease has ended. ARGV: its id, the grace.
constexpr std::string_view kReleaseScript = R"lua(
redis.call('HDEL', key('leases'), ARGV[1])
forget(ARGV[1])
ring_front(tonumber(ARGV[2]))
return 1
)lua";

// A ticket leaves. ARGV: its id.
constexpr std::string_view kLeaveScript = R"lua(
leave(ARGV[1], part)
forget(ARGV[1])
return 1
)lua";

// Something changed that may let the first through. ARGV: the grace.
constexpr std::string_view kRingFrontScript = R"lua(
ring_front(tonumber(ARGV[1]))
return 1
)lua";

// A client lives. ARGV: its id, the time to live, "leases" or "tickets", and the time that
// everybody is given (see kCheckEpochScript) if nobody could be heard for a whole time to live.
// "heard" or "missing"; for a ticket also "ended", or "rung" if it was rung, which may not have
// reached it. A lease is not ended here, whatever Redis says: only its owner can, by its file on
// its host.
constexpr std::string_view kHeartbeatScript = R"lua(
local id = ARGV[1]
local waits = ARGV[3] == 'tickets'
if waits and redis.call('EXISTS', prefix .. ':ended:' .. id) == 1 then return 'ended' end
if redis.call('HEXISTS', key(ARGV[3]), id) == 0 then return 'missing' end
local heard = tonumber(redis.call('GET', key('heard')) or '0') or 0
if now - heard > tonumber(ARGV[2]) then
  redis.call('SET', key('settles'), number(now + ARGV[4]))
end
beat(id, tonumber(ARGV[2]))
if waits and redis.call('HEXISTS', key('rung'), id) == 1 then return 'rung' end
return 'heard'
)lua";

// The data may not be what it was: then nobody is granted anything until everybody has had the time
// to put back what is lost. On all hosts after a loss; on one of which nobody could be heard,
// there. ARGV: the server's run, the time for that, and how long nobody was heard of if nobody
// could be. Gives what PREFIX:born and PREFIX:HOST:settles say by now.
constexpr std::string_view kCheckEpochScript = R"lua(
local born = redis.call('GET', prefix .. ':born')
local heard = tonumber(redis.call('GET', key('heard')) or '0') or 0
local same = born and string.sub(born, 1, #ARGV[1] + 1) == ARGV[1] .. ' '
-- A clock that was set back would have everybody wait until it has caught up.
local function too_far(time) return (tonumber(time) or 0) > now + ARGV[2] end
if not same or too_far(string.sub(born, #ARGV[1] + 2)) then
  born = ARGV[1] .. ' ' .. number(now + ARGV[2])
  redis.call('SET', prefix .. ':born', born)
elseif now - heard >= tonumber(ARGV[3]) or too_far(redis.call('GET', key('settles'))) then
  redis.call('SET', key('settles'), number(now + ARGV[2]))
end
redis.call('SET', key('heard'), number(now))
return {born, redis.call('GET', key('settles')) or ''}
)lua";

// A host tells of itself. ARGV: its name, its card. What nobody was heard of for a month is
// forgotten.
constexpr std::string_view kPublishScript = R"lua(
redis.call('HSET', prefix .. ':hosts', ARGV[1], ARGV[2])
redis.call('HSET', prefix .. ':seen', ARGV[1], number(now))
local seen = redis.call('HGETALL', prefix .. ':seen')
for i = 1, #seen, 2 do
  if now - (tonumber(seen[i + 1]) or 0) > 30 * 86400000 then
    redis.call('HDEL', prefix .. ':hosts', seen[i])
    redis.call('HDEL', prefix .. ':seen', seen[i])
  end
end
return 1
)lua";

}  // namespace berth
