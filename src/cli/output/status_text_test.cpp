// Unit tests of the text of `berth status` and `berth queue`: it depends on its arguments only.
#include "cli/output/status_text.h"

#include <gtest/gtest.h>

namespace berth {
namespace {

using namespace std::chrono_literals;

const TimePoint kNow{std::chrono::seconds(1'000'000'000)};
constexpr uid_t kViewer = 4711;

// GPU 0 is leased by user 4712 for 50 minutes, 10 minutes ago; the viewer waits for it.
Status make_host() {
  Status host;
  host.host = "gpu-a";
  host.time = kNow;
  Record lease;
  lease.id = "aaaaaaaa";
  lease.uid = kViewer + 1;
  lease.command = "train";
  lease.granted = kNow - 10min;
  lease.request.time = 50min;
  host.leases.push_back(lease);
  GpuStatus gpu;
  gpu.view.gpu.memory_total = gib(80);
  gpu.view.gpu.memory_used = gib(20);
  gpu.view.leases = {lease.id};
  gpu.state_reason.state = GpuState::leased;
  host.gpus.push_back(gpu);
  TicketStatus ticket;
  ticket.position = 1;
  ticket.record.id = "bbbbbbbb";
  ticket.record.uid = kViewer;
  ticket.record.since = kNow - 5min;
  ticket.reason = "GPU 0 leased by 4712";
  ticket.starts = kNow + 40min;
  host.queue.push_back(ticket);
  return host;
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(StatusText, is_for_the_time_of_the_status) {
  const std::string text = status_text(make_host(), Terminal{}, kViewer, StatusDetail::brief);
  EXPECT_TRUE(has(text, "in 40m")) << text;
  EXPECT_TRUE(has(text, "in ~40m")) << text;
  const std::string full = status_text(make_host(), Terminal{}, kViewer, StatusDetail::full);
  EXPECT_TRUE(has(full, "ends in 40m")) << full;
  EXPECT_TRUE(has(full, "starts in about 40m  waits 5m")) << full;
  Status late = make_host();
  late.time = kNow + 1h;
  const std::string queue = queue_text(late, Terminal{}, kViewer);
  EXPECT_TRUE(has(queue, "start unknown  waits 1h 5m")) << queue;
  EXPECT_TRUE(has(status_text(late, Terminal{}, kViewer, StatusDetail::full), "20m late"));
}

TEST(StatusText, marks_what_belongs_to_the_viewer) {
  EXPECT_TRUE(has(queue_text(make_host(), Terminal{}, kViewer), "*4711"));
  EXPECT_FALSE(has(queue_text(make_host(), Terminal{}, kViewer + 1), "*4711"));
  for (const StatusDetail detail : {StatusDetail::brief, StatusDetail::full}) {
    EXPECT_TRUE(has(status_text(make_host(), Terminal{}, kViewer + 1, detail), "*4712"));
    EXPECT_FALSE(has(status_text(make_host(), Terminal{}, kViewer, detail), "*4712"));
  }
}

TEST(StatusText, only_a_wide_terminal_has_bars) {
  const auto at_width = [](std::size_t width) {
    Terminal terminal;
    terminal.width = width;
    terminal.charset = Charset::utf8;
    return status_text(make_host(), terminal, kViewer, StatusDetail::brief);
  };
  EXPECT_TRUE(has(at_width(120), "██······  20/80 GiB")) << at_width(120);
  EXPECT_FALSE(has(at_width(80), "█")) << at_width(80);
  EXPECT_TRUE(has(at_width(80), "20/80 GiB")) << at_width(80);
}

}  // namespace
}  // namespace berth
