// Renders head, GPUs, queue and foot of the screen; see frame.h.
#include "top/frame.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <iterator>

#include "status/status_format.h"
#include "top/details.h"
#include "top/head.h"
#include "top/plot_panel.h"
#include "top/row_lines.h"

namespace berth::top {
namespace {

using Lines = std::vector<StyledLine>;

void append(Lines& lines, Lines more) {
  std::move(more.begin(), more.end(), std::back_inserter(lines));
}

// Wraps `text` into at most three lines.
Lines wrapped_lines(Style style, const std::string& text, const Canvas& canvas) {
  constexpr std::size_t kMaxLines = 3;
  const std::string all = wrap_text(text, canvas.width - 1, 1);
  Lines lines;
  std::size_t begin = 0;
  while (begin < all.size() && lines.size() < kMaxLines) {
    const std::size_t end = std::min(all.find('\n', begin), all.size());
    lines.push_back(make_line(style, all.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

Lines problem_lines(const Model& model, const Canvas& canvas, TimePoint now) {
  const TopSnapshot& snapshot = model.snapshot();
  const std::string old =
      snapshot.last_success
          ? fmt::format(" The data below is {} old.", format_age(*snapshot.last_success, now))
          : "";
  if (!snapshot.problem.empty()) {
    return wrapped_lines(Style::bad, fmt::format("! {}.{}", canvas.escape(snapshot.problem), old),
                         canvas);
  }
  if (snapshot.driver_is_slow) {
    return wrapped_lines(Style::warning, fmt::format("! Waiting for the driver to answer.{}", old),
                         canvas);
  }
  return {};
}

// The keys and their effects, as many as fit.
StyledLine keys_line(const Model& model, const Canvas& canvas) {
  struct Hint {
    const char* key;
    std::string effect;
  };
  const bool list = model.mode() == Mode::list;
  std::vector<Hint> hints{{"q", list ? "quit" : "back"}};
  if (list) {
    hints.push_back({"h", "help"});
    hints.push_back({"Enter", "details"});
    hints.push_back({"s", fmt::format("sort ({})", to_string(model.sort()))});
    hints.push_back({"v", model.chosen_detail()
                              ? fmt::format("view ({})", to_string(*model.chosen_detail()))
                              : std::string("view")});
    hints.push_back({"f", model.filter().empty()
                              ? std::string("filter")
                              : fmt::format("filter ({})", canvas.escape(model.filter()))});
  } else {
    hints.push_back({"j k", "scroll"});
  }
  if (model.mode() != Mode::help) {
    hints.push_back({"c", "cancel"});
    hints.push_back({"r", "release"});
    hints.push_back({"p", model.paused() ? "resume" : "pause"});
  }
  StyledLine line;
  for (const Hint& hint : hints) {
    StyledLine longer = line;
    longer.add(Style::plain, line.pieces.empty() ? " " : "  ");
    longer.add(Style::bold, hint.key).add(Style::dim, fmt::format(" {}", hint.effect));
    if (longer.width() >= canvas.width) break;
    line = std::move(longer);
  }
  return line;
}

Lines foot_lines(const Model& model, const Canvas& canvas) {
  if (model.mode() == Mode::confirm && model.action()) {
    Lines lines = wrapped_lines(Style::warning, canvas.escape(model.action()->question), canvas);
    StyledLine keys = make_line(Style::bold, " y");
    lines.push_back(keys.add(Style::dim, " yes  ").add(Style::bold, "n").add(Style::dim, " no"));
    return lines;
  }
  if (model.mode() == Mode::filter) {
    StyledLine line = make_line(Style::bold, " User: ");
    return {truncate_line(line.add(Style::plain, canvas.escape(model.filter())), canvas.width - 1,
                          canvas.charset)};
  }
  if (model.notice()) {
    return wrapped_lines(model.notice()->style, canvas.escape(model.notice()->text), canvas);
  }
  return {keys_line(model, canvas)};
}

// The first row to show, so that row `selected` and its neighbours are visible.
std::size_t scroll_offset(std::size_t offset, std::optional<std::size_t> selected,
                          std::size_t height, std::size_t total) {
  if (total <= height) return 0;
  if (selected) {
    offset = std::min(offset, *selected > 0 ? *selected - 1 : 0);
    const std::size_t end_row = std::min(*selected + 2, total);
    if (end_row > offset + height) offset = end_row - height;
  }
  return std::min(offset, total - height);
}

// What a click on a row selects: the row, or the GPU, lease or ticket above that it belongs to.
std::optional<RowKey> click_target(const std::vector<Row>& rows, std::size_t i) {
  while (!rows[i].is_selectable()) {
    if (i == 0 || rows[i].kind == RowKind::host) return std::nullopt;
    --i;
  }
  return make_row_key(rows[i]);
}

// Says how many lines are not visible.
StyledLine more_line(std::size_t above, std::size_t below) {
  return make_line(Style::dim, below > 0 ? fmt::format("   {} more lines below", below)
                                         : fmt::format("   {} more lines above", above));
}

// The rows that fit in `height`. If some do not, the last line says how many are below or above.
Lines pane_lines(const std::vector<Row>& rows, const Model& model, std::size_t& offset,
                 std::size_t height, const RenderContext& context) {
  Lines lines;
  if (height == 0) return lines;
  const bool all = rows.size() <= height;
  const std::size_t visible_rows = all ? rows.size() : height - 1;
  std::optional<std::size_t> selected;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (model.is_selected(rows[i])) selected = i;
  }
  offset = scroll_offset(offset, selected, visible_rows, rows.size());
  for (std::size_t i = offset; i < offset + visible_rows; ++i) {
    lines.push_back(row_line(rows[i], context));
    lines.back().selected = selected == i;
    lines.back().target = click_target(rows, i);
  }
  if (!all) lines.push_back(more_line(offset, rows.size() - offset - visible_rows));
  return lines;
}

// The message for an empty list.
Lines empty_lines(const Model& model, const Canvas& canvas) {
  const TopSnapshot& snapshot = model.snapshot();
  if (!snapshot.last_success) {
    return {make_line(Style::dim, snapshot.problem.empty() ? " Reading the GPUs." : "")};
  }
  if (!model.filter().empty()) {
    return {
        make_line(Style::dim, fmt::format(" No lease, process or ticket of a user matching '{}'. "
                                          "Esc shows all.",
                                          canvas.escape(model.filter())))};
  }
  if (snapshot.hosts.empty()) {
    return wrapped_lines(
        Style::dim, "No host has registered yet: run 'berth status' once on each host with GPUs.",
        canvas);
  }
  return {make_line(Style::dim, " The driver reports no GPU.")};
}

std::string queue_title(const Model& model) {
  std::size_t waiting = 0;
  bool leased = false;
  for (const Status& host : model.snapshot().hosts) {
    waiting += host.queue.size();
    leased = leased || !host.leases.empty();
  }
  if (waiting > 0) return fmt::format(" Queue: {} waiting", waiting);
  return leased ? " Queue: empty" : " No jobs yet: berth run -- python train.py";
}

Lines list_lines(Model& model, std::size_t height, const RenderContext& context) {
  Model::Scroll& scroll = model.scroll();
  Lines lines;
  if (model.gpu_rows().empty() && model.queue().empty()) return empty_lines(model, context.canvas);
  const std::size_t gpu_height = 1 + model.gpu_rows().size();
  const std::size_t queue_height = 1 + model.queue().size();
  const std::size_t free_height = height - std::min(height, gpu_height + 1);
  const std::size_t queue_pane_height =
      std::min(queue_height, std::max({free_height, height / 3, std::size_t{3}}));
  const bool has_gap = gpu_height + 1 + queue_pane_height <= height;
  const std::size_t gpu_pane_height = height - queue_pane_height - (has_gap ? 1 : 0);
  lines.push_back(title_line(context));
  scroll.step = std::max<std::size_t>(gpu_pane_height / 2, 1);
  append(lines, pane_lines(model.gpu_rows(), model, scroll.gpus, gpu_pane_height - 1, context));
  if (has_gap) lines.emplace_back();
  lines.push_back(make_line(Style::dim, queue_title(model)));
  append(lines, pane_lines(model.queue(), model, scroll.queue, queue_pane_height - 1, context));
  const std::size_t left_over = height - std::min(height, lines.size() + 1);
  auto panel =
      plot_panel(model.gpu_rows(), context.history, context.canvas, left_over, context.now);
  if (!panel.empty()) lines.emplace_back();
  append(lines, std::move(panel));
  return lines;
}

// A title and the visible part of a page of text.
Lines page_lines(Model& model, const std::string& title, Lines text, std::size_t height) {
  std::size_t& page = model.scroll().page;
  const std::size_t free_height = height - std::min<std::size_t>(height, 2);
  const bool all = text.size() <= free_height;
  const std::size_t visible = all ? text.size() : std::max<std::size_t>(free_height, 1) - 1;
  page = std::min(page, text.size() - visible);
  model.scroll().step = std::max<std::size_t>(visible / 2, 1);
  Lines lines{make_line(Style::bold, fmt::format(" {}", title)), StyledLine{}};
  for (std::size_t i = page; i < page + visible; ++i) lines.push_back(std::move(text[i]));
  if (!all) lines.push_back(more_line(page, text.size() - page - visible));
  return lines;
}

Lines body_lines(Model& model, std::size_t height, const RenderContext& context) {
  if (model.mode() == Mode::help) {
    return page_lines(model, "Keys", help_lines(context.canvas.charset), height);
  }
  const Row* row = model.selected();
  if (model.details_open() && row != nullptr) {
    return page_lines(model, details_title(*row, context.canvas), details_lines(*row, context),
                      height);
  }
  return list_lines(model, height, context);
}

bool is_too_small(const Canvas& canvas) {
  return canvas.width < kMinWidth || canvas.height < kMinHeight;
}

}  // namespace

void fit_list(Model& model, const Canvas& canvas, TimePoint now) {
  if (is_too_small(canvas) || (model.mode() != Mode::list && model.mode() != Mode::filter)) return;
  constexpr std::size_t kTitles = 3;  // of the GPUs and of the queue, with a blank line between
  const std::size_t used = head_lines(model, canvas, now).size() +
                           problem_lines(model, canvas, now).size() +
                           foot_lines(model, canvas).size() + kTitles;
  model.fit_list(canvas.height - std::min(canvas.height, used));
}

Frame render_frame(Model& model, const PlotHistory& history, const Canvas& canvas, TimePoint now) {
  Frame frame;
  if (is_too_small(canvas)) {
    const std::string text = fmt::format("Too small: {}x{} (berth top needs {}x{})", canvas.width,
                                         canvas.height, kMinWidth, kMinHeight);
    frame.lines.push_back(
        make_line(Style::plain, truncate_text(text, canvas.width, canvas.charset)));
    return frame;
  }
  append(frame.lines, head_lines(model, canvas, now));
  append(frame.lines, problem_lines(model, canvas, now));
  auto foot = foot_lines(model, canvas);
  const std::size_t height = canvas.height - frame.lines.size() - foot.size();
  const ColumnWidths columns = compute_column_widths(model.snapshot(), model.detail(), canvas, now);
  auto body = body_lines(model, height, {canvas, columns, history, now, model.viewer()});
  body.resize(height);
  append(frame.lines, std::move(body));
  if (model.mode() == Mode::filter) {
    frame.cursor = {canvas.height - 1, std::min(foot.back().width(), canvas.width - 1)};
  }
  append(frame.lines, std::move(foot));
  for (StyledLine& line : frame.lines)
    line = truncate_line(std::move(line), canvas.width, canvas.charset);
  return frame;
}

}  // namespace berth::top
