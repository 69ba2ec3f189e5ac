// Writing and reading of the stream; see stream.h.
#include "cluster/store/history_stream.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <string_view>
#include <utility>

#include "archive/lines.h"
#include "base/configuration.h"

namespace berth {
namespace {

constexpr const char* kField = "line";
// Of a piece: the server does nothing else while it is read.
constexpr std::size_t kPieceBytes = 1 << 20;
// Clocks of hosts and of the server differ.
constexpr std::chrono::hours kClocksDiffer(24);

// The lines behind an id. ARGV: the id, the longest line, the size of a piece. Few at a time: each
// may be of any size. From the id on and not behind it, which would need Redis 6.2.
constexpr std::string_view kRead = R"lua(
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

// The id of the last line; its value may be of any size.
constexpr std::string_view kLast = R"lua(
local last = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
return last and last[1] or '0'
)lua";

std::string key_of(const RedisUrl& url) {
  return fmt::format("{}:history", url.prefix);
}

}  // namespace

Result<void> send_lines(RedisSession& server, const RedisUrl& url,
                        const std::vector<std::string>& lines) {
  std::vector<RedisConnection::Words> commands;
  commands.reserve(lines.size());
  for (const std::string& line : lines) {
    commands.push_back(
        {"XADD", key_of(url), "MAXLEN", "~", std::to_string(kMostStreamLines), "*", kField, line});
  }
  const auto sent = server.pipeline(commands);
  if (!sent) return tl::make_unexpected(sent.error());
  return {};
}

HistoryStream::HistoryStream(const RedisUrl& url, std::string after)
    : key_(key_of(url)), after_(std::move(after)) {}

HistoryStream::HistoryStream(const RedisUrl& url, TimePoint since)
    : HistoryStream(url, std::to_string(std::max<std::int64_t>(to_ms(since - kClocksDiffer), 0))) {}

Result<HistoryStream> HistoryStream::from_now_on(const RedisUrl& url) {
  static const Script script(kLast);
  RedisSession server(url);
  const auto last = server.run(script, {key_of(url)}, {});
  if (!last) return tl::make_unexpected(last.error());
  return HistoryStream(url, last->text());
}

Result<bool> HistoryStream::next(RedisSession& server, const TakeView& take) {
  static const Script script(kRead);
  const auto piece = server.run(
      script, {key_}, {after_, std::to_string(kLongestLine), std::to_string(kPieceBytes), kField});
  if (!piece) return tl::make_unexpected(piece.error());
  if (piece->list().size() != 2 || piece->list()[1].list().empty()) return false;
  after_ = piece->list()[0].text();
  for (const Reply& line : piece->list()[1].list()) {
    const EntryView* const view = reader_.read(line.text());
    if (view != nullptr && is_host_name(view->host) && !view->user.empty()) {
      take(*view);
    } else {
      ++damaged_;
    }
  }
  return true;
}

RedisConnection::Words HistoryStream::wait_words() const {
  return {"XREAD", "COUNT", "1", "BLOCK", "0", "STREAMS", key_, after_};
}

}  // namespace berth
