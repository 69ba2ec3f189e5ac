// Appending to the stream and reading it in chunks; see history_stream.h.
#include "cluster/store/history_stream.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <string_view>
#include <utility>

#include "archive/line_reader.h"
#include "base/configuration.h"
#include "base/text.h"

namespace berth {
namespace {

constexpr const char* kLineField = "line";
// The size of a chunk. The server does nothing else while a script reads one.
constexpr std::size_t kMaxReadBytes = 1 << 20;
// The clocks of the hosts and of the server may differ by this much.
constexpr std::chrono::hours kMaxClockSkew(24);
// The year 2096, which fits into 64 bits of nanoseconds. Any client can add an entry with any id.
constexpr std::int64_t kMaxStreamTimeMs = 4'000'000'000'000;

// Returns the id of the last entry that was read, and the lines after the given id; an empty line
// for an invalid entry. ARGV: the id, the longest line, the size of a chunk, the field. Reads 16
// entries at a time, since each may be of any size. Each range begins with the id itself, which is
// then skipped: a range that begins after an id would need Redis 6.2.
constexpr std::string_view kReadLinesScript = R"lua(
local last, lines, size = ARGV[1], {}, 0
local longest, most = tonumber(ARGV[2]), tonumber(ARGV[3])
local some
repeat
  some = redis.call('XRANGE', KEYS[1], last, '+', 'COUNT', 16)
  local before = last
  for _, entry in ipairs(some) do
    if entry[1] ~= before then
      local line = ''
      if entry[2][1] == ARGV[4] and #entry[2][2] <= longest then line = entry[2][2] end
      lines[#lines + 1] = line
      size = size + #line + 64
      last = entry[1]
    end
  end
until #some < 16 or size >= most
return {last, lines}
)lua";

// Returns the id of the last entry, without its value, which may be of any size.
constexpr std::string_view kLastIdScript = R"lua(
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
return last and last[1] or '0'
)lua";

// Returns the id of the first entry, which begins with the time at which it was sent.
constexpr std::string_view kFirstIdScript = R"lua(
local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
return first and first[1] or ''
)lua";

std::string stream_key(const RedisUrl& url) {
  return fmt::format("{}:history", url.prefix);
}

}  // namespace

Result<void> append_to_stream(RedisSession& server, const RedisUrl& url,
                              const std::vector<std::string>& lines) {
  std::vector<RedisCommand> commands;
  commands.reserve(lines.size());
  for (const std::string& line : lines) {
    commands.push_back({"XADD", stream_key(url), "MAXLEN", "~", std::to_string(kMaxStreamLines),
                        "*", kLineField, line});
  }
  TRY(server.pipeline(commands));
  return {};
}

Result<std::optional<TimePoint>> read_stream_start(RedisSession& server, const RedisUrl& url) {
  static const Script script(kFirstIdScript);
  const Reply first = TRY(server.run(script, {stream_key(url)}, {}));
  const std::string& id = first.text();
  const auto sent_ms = parse_integer<std::int64_t>(id.substr(0, id.find('-')));
  if (!sent_ms || *sent_ms > kMaxStreamTimeMs) return std::optional<TimePoint>();
  return std::optional(TimePoint(std::chrono::milliseconds(*sent_ms)));
}

HistoryStream::HistoryStream(const RedisUrl& url, std::string last_id)
    : key_(stream_key(url)), last_id_(std::move(last_id)) {}

HistoryStream::HistoryStream(const RedisUrl& url, TimePoint since)
    : HistoryStream(url, std::to_string(std::max<std::int64_t>(to_ms(since - kMaxClockSkew), 0))) {}

Result<HistoryStream> HistoryStream::open_at_end(const RedisUrl& url) {
  static const Script script(kLastIdScript);
  RedisSession server(url);
  const Reply last = TRY(server.run(script, {stream_key(url)}, {}));
  return HistoryStream(url, last.text());
}

Result<bool> HistoryStream::read_next(RedisSession& server, const EntryViewCallback& on_entry) {
  static const Script script(kReadLinesScript);
  const Reply chunk = TRY(server.run(
      script, {key_},
      {last_id_, std::to_string(kMaxLineBytes), std::to_string(kMaxReadBytes), kLineField}));
  if (chunk.list().size() != 2 || chunk.list()[1].list().empty()) return false;
  last_id_ = chunk.list()[0].text();
  for (const Reply& line : chunk.list()[1].list()) {
    const EntryView* const view = reader_.read(line.text());
    if (view != nullptr && is_host_name(view->host) && !view->user.empty()) {
      on_entry(*view);
    } else {
      ++damaged_;
    }
  }
  return true;
}

RedisCommand HistoryStream::wait_command() const {
  return {"XREAD", "COUNT", "1", "BLOCK", "0", "STREAMS", key_, last_id_};
}

}  // namespace berth
