// Tests of the frames at several sizes: all lines fit, and text of other users is escaped.
#include "top/frame.h"

#include <gtest/gtest.h>

#include "top/plots.h"
#include "top/testing/snapshots.h"

namespace berth::top {
namespace {

using namespace testing;
using namespace std::chrono_literals;

class FrameTest : public ::testing::Test {
 protected:
  FrameTest() { show(make_snapshot()); }

  void show(const TopSnapshot& one) {
    model_.set_snapshot(share_snapshot(one));
    history_.add_snapshot(one.hosts, PlotHistory::Clock::time_point{});
  }
  std::string render(std::size_t width = 80, std::size_t height = 24,
                     Charset charset = Charset::utf8) {
    std::string all;
    const Frame frame = make_frame({width, height, charset});
    EXPECT_LE(frame.lines.size(), height);
    for (const StyledLine& line : frame.lines) {
      EXPECT_LE(line.width(), width) << line.text();
      all += (line.selected ? ">" : "") + line.text() + "\n";
    }
    return all;
  }
  Frame make_frame(const Canvas& canvas) {
    fit_list(model_, canvas, kNow);
    return render_frame(model_, history_, canvas, kNow);
  }
  static bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  }

  Model model_{kViewer};
  PlotHistory history_{1000ms};
};

TEST_F(FrameTest, shows_gpus_and_queue_at_80x24) {
  const std::string all = render();
  for (const char* part :
       {"gpu-a  4 GPUs: 1 free, 3 leased", "free: GPU 3", "0  GeForce RTX 4090", "leased",
        "20.0/24 GiB", "90%", "61°C", "end unknown  exclusive  for 10m", "python train.py",
        "as on GPU 1", "Queue: 2 waiting",
        "1  4000002  start unknown  waiting 10m  1 GPU  python mine.py", "GPU 1 leased by bob",
        "q quit"}) {
    EXPECT_TRUE(has(all, part)) << part << "\n" << all;
  }
  EXPECT_TRUE(has(all, ">   0  GeForce")) << all;
}

TEST_F(FrameTest, drawing_does_not_change_the_rows) {
  const auto rows = [&] { return std::pair(model_.gpu_rows().size(), model_.queue().size()); };
  make_frame({80, 50, Charset::utf8});
  const auto before = rows();
  const Frame low = render_frame(model_, history_, {80, 12, Charset::utf8}, kNow);
  EXPECT_EQ(low.lines.size(), 12U);
  EXPECT_EQ(rows(), before);
  make_frame({80, 12, Charset::utf8});
  EXPECT_LT(rows(), before);
}

TEST_F(FrameTest, fits_every_size) {
  TopSnapshot many = make_snapshot();
  for (unsigned i = 4; i < 40; ++i) many.hosts[0].gpus.push_back(gpu(i, i % 24, i));
  for (int i = 0; i < 50; ++i) many.hosts[0].queue.push_back(many.hosts[0].queue.front());
  many.hosts.push_back(many.hosts[0]);
  many.hosts[1].host = "gpu-b";
  many.hosts[1].is_remote = true;
  for (const std::string& problem : {std::string(), std::string(400, 'x'), std::string("away")}) {
    many.problem = problem;
    show(many);
    for (std::size_t width = 1; width < 220; width += 19) {
      for (std::size_t height = 1; height < 60; height += 11) render(width, height);
    }
    for (const char* keys : {"h", "q", "G", "c", "n"}) {
      type_keys(model_, keys);
      render(60, 10);
    }
  }
}

TEST_F(FrameTest, ends_come_before_the_job_and_estimates_are_marked) {
  TopSnapshot some = make_snapshot();
  Status& host = some.hosts[0];
  host.leases[0].request.time = 50min;  // granted 10 minutes ago
  host.leases[1].request.time = 30min;
  host.leases[1].time_is_estimated = true;
  host.queue[0].starts = kNow + 20min;
  host.next_free = NextFree{{{1, {}}, {2, {}}}, kNow + 20min, EndSource::estimated};
  show(some);
  for (const std::size_t height : {24UL, 14UL}) {
    const std::string all = render(80, height);
    for (const char* part : {"4000002  starts in ~20m  waiting 10m",
                             "free: GPU 3  next free: GPUs 1,2 in about 20m"}) {
      EXPECT_TRUE(has(all, part)) << part << "\n" << all;
    }
    const bool full = height == 24;
    EXPECT_TRUE(has(all, full ? "4000002  ends in 40m " : "4000002  in 40m ")) << all;
    EXPECT_TRUE(has(all, full ? "4000001  ends in ~20m " : "4000001  in ~20m ")) << all;
  }
  host.leases[0].request.time = 5min;
  show(some);
  EXPECT_TRUE(has(render(), "4000002  5m late ")) << render();
}

TEST_F(FrameTest, at_60_columns_no_end_is_cut) {
  TopSnapshot some = make_snapshot();
  some.hosts[0].leases[0].request.time = 7h;  // granted 10 minutes ago
  some.hosts[0].leases[1].request.time = 5min;
  for (GpuStatus& gpu : some.hosts[0].gpus) {
    gpu.view.gpu.memory_used = gib(61);
    gpu.view.gpu.memory_total = gib(80);
    gpu.view.gpu.temperature_c = 61;
  }
  show(some);
  const std::string narrow = render(60, 14);
  EXPECT_TRUE(has(narrow, "4000002  in 6h 50m ") && has(narrow, "4000001  5m late ")) << narrow;
  EXPECT_FALSE(has(narrow, "TEMP")) << narrow;
  EXPECT_TRUE(has(render(80, 14), "TEMP"));
}

TEST_F(FrameTest, a_lease_that_cannot_be_read_has_no_times) {
  TopSnapshot some = make_snapshot();
  Record& lease = some.hosts[0].leases[0];
  lease.granted = TimePoint{};
  lease.command.clear();
  lease.problem = "it is not valid JSON";
  show(some);
  for (const std::size_t height : {24UL, 14UL}) {
    const std::string all = render(100, height);
    EXPECT_TRUE(has(all, "unreadable record")) << all;
    EXPECT_FALSE(has(all, "000d")) << all;
  }
  model_.handle_key({KeyKind::enter});
  EXPECT_TRUE(has(render(), "it is not valid JSON")) << render();
}

TEST_F(FrameTest, sixteen_gpus_and_the_free_one_fit_80x24) {
  TopSnapshot many = make_snapshot();
  Status& host = many.hosts[0];
  for (unsigned i = 4; i < 16; ++i) host.gpus.push_back(gpu(i, 20, 90));
  for (std::size_t i = 4; i < 15; ++i) {
    add_lease(host, {i}, record(std::string(8, static_cast<char>('e' + i)), kOther, "python x.py"));
  }
  show(many);
  const std::string all = render();
  EXPECT_TRUE(has(all, "free: GPUs 3,15")) << all;
  EXPECT_TRUE(has(all, "\n  15  free ")) << all;
  EXPECT_TRUE(has(all, "Queue: 2 waiting")) << all;
  EXPECT_FALSE(has(all, "NAME")) << all;  // there is no room for a useful part of it
  EXPECT_TRUE(has(render(120, 24), "NAME")) << render(120, 24);
}

TEST_F(FrameTest, a_large_screen_shows_processes_and_charts) {
  TopSnapshot some = make_snapshot();
  add_process(some.hosts[0], 1, "bbbbbbbb", 4712);
  add_process(some.hosts[0], 3, "", 4713);
  show(some);
  const std::string all = render(160, 50);
  EXPECT_TRUE(has(all, "python (pid 4712), 3 GiB")) << all;
  EXPECT_TRUE(has(all, "! no lease: python (pid 4713), 3 GiB")) << all;
  EXPECT_TRUE(has(all, "GPU 3 utilization")) << all;
  EXPECT_TRUE(has(all, "GPU 3 memory")) << all;
  // The charts use the room: only the line above the keys is blank.
  const Frame frame = make_frame({160, 50, Charset::utf8});
  const auto has_chart = [&](std::size_t line) {
    return frame.lines[line].text().find("█") != std::string::npos;
  };
  EXPECT_TRUE(has_chart(47) || has_chart(46));
  const std::string small = render(80, 14);
  EXPECT_FALSE(has(small, "4712")) << small;
  EXPECT_TRUE(has(small, "! no lease")) << small;
}

TEST_F(FrameTest, shows_how_busy_this_host_is) {
  TopSnapshot some = make_snapshot();
  some.usage = {0.34, gib(61), gib(512)};
  show(some);
  EXPECT_TRUE(has(render(), "CPU 34%  RAM 61/512 GiB ")) << render();
  some.usage = {};
  show(some);
  EXPECT_FALSE(has(render(), "CPU")) << render();
}

TEST_F(FrameTest, load_and_temperature_have_colours) {
  TopSnapshot some = make_snapshot();
  some.hosts[0].gpus[1].view.gpu.temperature_c = 92;
  show(some);
  std::vector<std::pair<std::string, Style>> styles;
  for (const StyledLine& line : make_frame({}).lines) {
    for (const StyledText& piece : line.pieces) styles.emplace_back(piece.text, piece.style);
  }
  const auto has_style = [&](const char* text, Style style) {
    return std::find(styles.begin(), styles.end(), std::pair(std::string(text), style)) !=
           styles.end();
  };
  EXPECT_TRUE(has_style(" 10%", Style::notice));
  EXPECT_TRUE(has_style(" 50%", Style::good));
  EXPECT_TRUE(has_style(" 90%", Style::warning));
  EXPECT_TRUE(has_style("92°C", Style::bad));
  EXPECT_TRUE(has_style("61°C", Style::plain));
}

TEST_F(FrameTest, a_click_on_any_line_of_a_row_selects_it) {
  TopSnapshot some = make_snapshot();
  add_process(some.hosts[0], 1, "bbbbbbbb", 4712);
  show(some);
  const Frame frame = make_frame({160, 50, Charset::utf8});
  const auto target_of = [&](const char* part) -> std::optional<RowKey> {
    for (const StyledLine& line : frame.lines) {
      if (line.text().find(part) != std::string::npos) return line.target;
    }
    return std::nullopt;
  };
  EXPECT_EQ(target_of("   3  GeForce"), (RowKey{RowKind::gpu, "gpu-a", "GPU-3", ""}));
  EXPECT_EQ(target_of("pid 4712"), (RowKey{RowKind::lease, "gpu-a", "GPU-1", "bbbbbbbb"}));
  EXPECT_EQ(target_of("GPU 1 leased by bob"), (RowKey{RowKind::ticket, "gpu-a", "", "cccccccc"}));
  EXPECT_EQ(target_of("q quit"), std::nullopt);
}

TEST_F(FrameTest, the_help_says_that_it_goes_on_below) {
  type_keys(model_, "h");
  EXPECT_TRUE(has(render(), "more lines below")) << render();
  for (int i = 0; i < 40; ++i) model_.handle_key({KeyKind::wheel_down});
  EXPECT_TRUE(has(render(), "more lines above")) << render();
  EXPECT_TRUE(has(render(), "CPU, RAM")) << render();  // the last line
  EXPECT_FALSE(has(render(80, 40), "more lines")) << render(80, 40);
}

TEST_F(FrameTest, says_that_it_is_too_small) {
  EXPECT_TRUE(has(render(59, 24), "59x24") && has(render(59, 24), "60x10")) << render(59, 24);
  EXPECT_TRUE(has(render(80, 9), "80x9") && has(render(80, 9), "60x10")) << render(80, 9);
}

TEST_F(FrameTest, the_selection_is_always_visible) {
  TopSnapshot many = make_snapshot();
  for (unsigned i = 4; i < 60; ++i) many.hosts[0].gpus.push_back(gpu(i, 1, 1));
  show(many);
  for (const KeyKind kind : {KeyKind::down, KeyKind::up}) {
    for (int i = 0; i < 80; ++i) {
      model_.handle_key({kind});
      EXPECT_TRUE(has(render(), ">")) << i;
    }
  }
}

TEST_F(FrameTest, foreign_text_is_escaped) {
  TopSnapshot hostile = make_snapshot();
  hostile.hosts[0].host = "a\x1b[2J";
  hostile.hosts[0].leases[0].label = "one\ntwo\x1b]0;title\a";
  hostile.hosts[0].queue[0].record.command =
      "\x9b"
      "31m\u202e";
  hostile.hosts[0].queue[0].reason = "\r\t\x1b[H";
  add_process(hostile.hosts[0], 0, "aaaaaaaa", 4712);
  hostile.hosts[0].gpus[0].view.processes[0].process.name = "\x1b[5mpython";
  hostile.hosts[0].gpus[2].state_reason = {GpuState::drained, "drained: \x1b[1m"};
  hostile.hosts[0].gpus[0].view.gpu.name =
      "\x1b"
      "c";
  hostile.problem = "\x1b[31mred";
  show(hostile);
  for (const char* keys : {"", "h", "hG\n", "c"}) {
    for (const char key : std::string(keys)) {
      model_.handle_key(key == '\n' ? KeyPress{KeyKind::enter}
                                    : KeyPress{KeyKind::text, std::string(1, key)});
    }
    for (const Charset charset : {Charset::utf8, Charset::ascii}) {
      for (const char c : render(120, 40, charset) + render(120, 15, charset)) {
        EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << static_cast<int>(c);
        EXPECT_TRUE(charset == Charset::utf8 || static_cast<unsigned char>(c) < 0x7F);
      }
    }
  }
}

TEST_F(FrameTest, unknown_values_are_not_shown_as_numbers) {
  const std::string all = render(120, 40);
  const auto at = all.find("   3  GeForce");
  ASSERT_NE(at, std::string::npos) << all;
  const std::string line = all.substr(at, all.find('\n', at) - at);
  EXPECT_FALSE(has(line, "%")) << line;
}

TEST_F(FrameTest, shows_problems_above_the_last_snapshot) {
  TopSnapshot away = make_snapshot();
  away.problem = "Redis does not answer";
  away.last_success = kNow - 12s;
  show(away);
  EXPECT_TRUE(has(render(), "! Redis does not answer."));
  EXPECT_TRUE(has(render(), "12s"));  // the age of the snapshot
  EXPECT_TRUE(has(render(), "GeForce"));
  away.problem.clear();
  away.driver_is_slow = true;
  show(away);
  EXPECT_TRUE(has(render(), "! Waiting for the driver to answer."));
}

TEST_F(FrameTest, empty_states_say_what_to_do) {
  TopSnapshot free = make_snapshot();
  free.hosts[0].leases.clear();
  free.hosts[0].queue.clear();
  show(free);
  EXPECT_TRUE(has(render(), "No jobs yet: berth run -- python train.py"));
  Model fresh(kViewer);
  EXPECT_TRUE(has(render_frame(fresh, history_, {}, kNow).lines[2].text(), "GPUs"));
  type_keys(model_, "fno such user");
  EXPECT_TRUE(has(render(), "Esc shows all."));
}

TEST_F(FrameTest, details_show_the_whole_command) {
  TopSnapshot one = make_snapshot();
  one.hosts[0].queue[0].record.command = std::string(100, 'a') + " " + std::string(300, 'b');
  show(one);
  type_keys(model_, "Gk");
  model_.handle_key({KeyKind::enter});
  const std::string all = render();
  EXPECT_TRUE(has(all, "Ticket cccccccc"));
  EXPECT_EQ(std::count(all.begin(), all.end(), 'b') >= 300, true) << all;
  EXPECT_TRUE(has(all, "starts "));
}

TEST(MemoryBar, distinguishes_used_reserved_and_free) {
  TopSnapshot one = make_snapshot();
  Status& host = one.hosts[0];
  const auto bar = [&](std::size_t i, Charset charset) {
    StyledLine line;
    add_memory_bar(line, host, host.gpus[i], 12, charset);
    return line.text();
  };
  EXPECT_EQ(bar(0, Charset::ascii), "##==========");  // exclusive: the lease reserves all memory
  EXPECT_EQ(bar(3, Charset::ascii), "............");
  host.leases[0].request.memory = gib(8);
  EXPECT_EQ(reserved_unused(host, host.gpus[0]), gib(8));
  EXPECT_EQ(bar(0, Charset::ascii), "##====......");
  AttributedProcess process;
  process.process.memory = gib(3);
  process.lease = "aaaaaaaa";
  host.gpus[0].view.processes = {process};
  EXPECT_EQ(reserved_unused(host, host.gpus[0]), gib(5));
  EXPECT_EQ(bar(0, Charset::utf8), "██░░········");
  host.gpus[0].view.gpu.memory_used.reset();
  EXPECT_EQ(bar(0, Charset::ascii), "            ");
}

}  // namespace
}  // namespace berth::top
