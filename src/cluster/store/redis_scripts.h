// The Lua scripts of a Redis harbour.
//
// Each script runs as one atomic step. Running it twice does no harm.
//
// docs/redis.md describes the keys. KEYS are the prefix of all keys and that of the host's keys
// ("berth:", "berth:gpu07"), in a form that an ACL with ~berth:* allows. The scripts also use keys
// that are not in KEYS, which a standalone server allows and a Redis Cluster does not. Times are in
// milliseconds of the server's clock.
#pragma once

#include <string>
#include <string_view>

namespace berth {

// The beginning of each script. Numbers are formatted with %.0f, since Lua would write large ones
// as 1.7e+15.
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
  -- Only for a client that is there: the entry of a client that has left would never be removed.
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
-- Removes a ticket, and rings the ticket behind it, which may now be the first.
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
-- Rings the first ticket whose client sends heartbeats. If that client was rung a second ago or
-- earlier and has not answered, rings the next one, too.
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

// Makes all changes of a StoreChange, or none of them. ARGV: the changes as JSON. Returns 0 if it
// was refused; else 1, the order of the ticket, and the ids of the leases that were removed.
constexpr std::string_view kCommitScript = R"lua(
local o = cjson.decode(ARGV[1])
-- A client that was silent for long when it was read, and has sent a heartbeat since, is alive.
local silent, woken = {}, false
for _, id in ipairs(o.silent) do
  -- As Berth reads it: a value that is not a number of milliseconds does not count.
  local beat_ends = redis.call('HGET', key('beats'), id) or ''
  if #beat_ends > 15 or not string.match(beat_ends, '^%d+$') then beat_ends = 0 end
  silent[id] = beat_ends + o.grace <= now
  woken = woken or not silent[id]
end
-- A commit that arrives late must not undo a later drain or undrain.
if #o.drains + #o.undrains > 0 and version() ~= o.version then return {0} end
if o.lease and redis.call('HGET', key('leases'), o.id) ~= o.lease then
  -- A lease rests on all leases and drains, and if its client had no ticket, on the queue.
  if version() ~= o.version or woken then return {0} end
  if redis.call('GET', prefix .. ':born') ~= o.born then return {0} end
  if (redis.call('GET', key('settles')) or '') ~= o.settled then return {0} end
  if o.tail and (redis.call('ZRANGE', key('queue'), -1, -1)[1] or '') ~= o.tail then return {0} end
  if redis.call('EXISTS', prefix .. ':ended:' .. o.id) == 1 then return {0} end
  if o.instead_of then
    -- A ticket that waits on several hosts is granted once: a second host finds that it is gone.
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
-- Also above the epoch of a lease that is put back: the clock of another server may be behind.
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
for _, one in ipairs(o.replace) do
  if redis.call('HEXISTS', key('leases'), one[1]) == 1 then
    redis.call('HSET', key('leases'), one[1], one[2])
  end
end
local order = ''
-- Not for a client that holds a lease by now: a commit may arrive late.
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

// Removes a lease that has ended, and rings the front of the queue. ARGV: its id, the grace.
constexpr std::string_view kReleaseScript = R"lua(
redis.call('HDEL', key('leases'), ARGV[1])
forget(ARGV[1])
ring_front(tonumber(ARGV[2]))
return 1
)lua";

// Removes a ticket, and rings the one behind it. ARGV: its id.
constexpr std::string_view kLeaveScript = R"lua(
leave(ARGV[1], part)
forget(ARGV[1])
return 1
)lua";

// Rings the front of the queue after a change that may let a ticket be granted. ARGV: the grace.
constexpr std::string_view kRingFrontScript = R"lua(
ring_front(tonumber(ARGV[1]))
return 1
)lua";

// The heartbeat of a client. ARGV: its id, the TTL, "leases" or "tickets", and the recovery time
// (see kCheckEpochScript), which begins on this host if no client of it sent a heartbeat for a
// whole TTL. Returns a HeartbeatReply as a word. For a ticket that may be "ended" (it was
// cancelled) or "rung" (the ring may not have reached its client). A heartbeat never ends a lease,
// whatever Redis contains: only its owner can end it, by its file on its host.
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

// Begins a recovery time, in which no GPU is granted and all clients put back what the server may
// have lost. It begins on all hosts if the server has no data of Berth, is another one or was
// restarted, and on this host if no heartbeat could arrive here for long.
// ARGV: the server's run id, the recovery time, and the time without any heartbeat after which it
// is assumed that none could arrive. Returns the values of PREFIX:born and PREFIX:HOST:settles.
constexpr std::string_view kCheckEpochScript = R"lua(
local born = redis.call('GET', prefix .. ':born')
local heard = tonumber(redis.call('GET', key('heard')) or '0') or 0
local same = born and string.sub(born, 1, #ARGV[1] + 1) == ARGV[1] .. ' '
-- If the server's clock was set back, all clients would wait until it has caught up.
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

// Stores the information of a host. ARGV: the host's name, the information. Removes hosts that have
// published nothing for 30 days.
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
