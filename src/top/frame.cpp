// Head, cards, queue and foot; see frame.h.
#include "top/frame.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <iterator>

#include "base/time_text.h"
#include "status/status_parts.h"
#include "top/card_lines.h"
#include "top/details.h"

namespace berth::top {
namespace {

using Lines = std::vector<Line>;

// `text` on as many lines as it needs, three at most.
Lines wrapped_lines(Style style, const std::string& text, const Sheet& sheet) {
  constexpr std::size_t kMost = 3;
  const std::string all = wrapped(text, sheet.width - 1, 1);
  Lines lines;
  std::size_t begin = 0;
  while (begin < all.size() && lines.size() < kMost) {
    const std::size_t end = std::min(all.find('\n', begin), all.size());
    lines.push_back(plain_line(style, all.substr(begin, end - begin)));
    begin = end + 1;
  }
  return lines;
}

std::string gpus_text(const TopSnapshot& picture) {
  Status all;
  for (const Status& host : picture.hosts) {
    all.gpus.insert(all.gpus.end(), host.gpus.begin(), host.gpus.end());
  }
  return gpu_counts(all);
}

Line head_line(const Model& model, const Sheet& sheet, TimePoint now) {
  const TopSnapshot& picture = model.picture();
  Line line;
  if (picture.hosts.size() == 1) {
    const Status& host = picture.hosts.front();
    line.add(Style::bold, fmt::format(" {}", sheet.show(host.host)));
    line.add(Style::plain, fmt::format("  {}", gpu_counts(host)));
    line.add(Style::dim, fmt::format("  {}", sheet.show(driver_text(host))));
  } else {
    line.add(Style::bold, " berth top");
    if (picture.seen) line.add(Style::dim, fmt::format("  {} hosts", picture.hosts.size()));
  }
  if (picture.hosts.size() > 1) line.add(Style::plain, fmt::format("  {}", gpus_text(picture)));
  Line end = plain_line(Style::plain, " ");
  if (model.paused()) end.add(Style::warning, "paused  ");
  end.add(Style::dim, local_time(now).substr(11) + " ");
  const std::size_t room = sheet.width - std::min(sheet.width, end.width());
  line = cut(std::move(line), room, sheet.charset);
  line.add(Style::plain, std::string(room - line.width(), ' '));
  std::move(end.pieces.begin(), end.pieces.end(), std::back_inserter(line.pieces));
  return line;
}

Lines problem_lines(const Model& model, const Sheet& sheet, TimePoint now) {
  const TopSnapshot& picture = model.picture();
  const std::string old =
      picture.seen ? fmt::format(" Below is what was seen {} ago.", ago(*picture.seen, now)) : "";
  if (!picture.problem.empty()) {
    return wrapped_lines(Style::bad, fmt::format("! {}.{}", sheet.show(picture.problem), old),
                         sheet);
  }
  if (picture.slow) {
    return wrapped_lines(Style::warning, fmt::format("! Waiting for the driver to answer.{}", old),
                         sheet);
  }
  return {};
}

// As many of the keys as fit.
Line keys_line(const Model& model, const Sheet& sheet) {
  struct Hint {
    const char* key;
    std::string does;
  };
  const bool list = model.mode() == Mode::list;
  std::vector<Hint> hints{{"q", list ? "quit" : "back"}};
  if (list) {
    hints.push_back({"h", "help"});
    hints.push_back({"Enter", "details"});
    hints.push_back({"s", fmt::format("sort ({})", to_string(model.sort()))});
    hints.push_back({"f", model.filter().empty()
                              ? std::string("filter")
                              : fmt::format("filter ({})", sheet.show(model.filter()))});
  } else {
    hints.push_back({"j k", "scroll"});
  }
  if (model.mode() != Mode::help) {
    hints.push_back({"c", "cancel"});
    hints.push_back({"r", "release"});
    hints.push_back({"p", model.paused() ? "go on" : "pause"});
  }
  Line line;
  for (const Hint& hint : hints) {
    Line longer = line;
    longer.add(Style::plain, line.pieces.empty() ? " " : "  ");
    longer.add(Style::bold, hint.key).add(Style::dim, fmt::format(" {}", hint.does));
    if (longer.width() >= sheet.width) break;
    line = std::move(longer);
  }
  return line;
}

Lines foot_lines(const Model& model, const Sheet& sheet) {
  if (model.mode() == Mode::confirm && model.wish()) {
    Lines lines = wrapped_lines(Style::warning, sheet.show(model.wish()->question), sheet);
    Line keys = plain_line(Style::bold, " y");
    lines.push_back(keys.add(Style::dim, " yes  ").add(Style::bold, "n").add(Style::dim, " no"));
    return lines;
  }
  if (model.mode() == Mode::filter) {
    Line line = plain_line(Style::bold, " User: ");
    return {
        cut(line.add(Style::plain, sheet.show(model.filter())), sheet.width - 1, sheet.charset)};
  }
  if (model.notice()) {
    return wrapped_lines(model.notice()->style, sheet.show(model.notice()->text), sheet);
  }
  return {keys_line(model, sheet)};
}

// Where to begin, so that row `selected` and its neighbours are seen.
std::size_t scrolled(std::size_t offset, std::optional<std::size_t> selected, std::size_t height,
                     std::size_t total) {
  if (total <= height) return 0;
  if (selected) {
    offset = std::min(offset, *selected > 0 ? *selected - 1 : 0);
    const std::size_t behind = std::min(*selected + 2, total);
    if (behind > offset + height) offset = behind - height;
  }
  return std::min(offset, total - height);
}

// The rows that fit in `height`; where not all do, how many are below.
Lines part(const std::vector<Row>& rows, const Model& model, std::size_t& offset,
           std::size_t height, const Drawing& with) {
  Lines lines;
  if (height == 0) return lines;
  const bool all = rows.size() <= height;
  const std::size_t room = all ? rows.size() : height - 1;
  std::optional<std::size_t> selected;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (model.is_selected(rows[i])) selected = i;
  }
  offset = scrolled(offset, selected, room, rows.size());
  for (std::size_t i = offset; i < offset + room; ++i) {
    lines.push_back(row_line(rows[i], with));
    lines.back().selected = selected == i;
  }
  if (!all) {
    const std::size_t below = rows.size() - offset - room;
    lines.push_back(plain_line(Style::dim, below > 0
                                               ? fmt::format("   {} more lines below", below)
                                               : fmt::format("   {} more lines above", offset)));
  }
  return lines;
}

// What to say where there is nothing to show.
Lines empty_lines(const Model& model, const Sheet& sheet) {
  const TopSnapshot& picture = model.picture();
  if (!picture.seen) {
    return {plain_line(Style::dim, picture.problem.empty() ? " Looking at the GPUs." : "")};
  }
  if (!model.filter().empty()) {
    return {plain_line(Style::dim, fmt::format(" No lease, process or ticket of a user like '{}'. "
                                               "Esc shows all.",
                                               sheet.show(model.filter())))};
  }
  if (picture.hosts.empty()) {
    return wrapped_lines(Style::dim,
                         "No host has told of itself yet: run 'berth status' once on each that has "
                         "GPUs.",
                         sheet);
  }
  return {plain_line(Style::dim, " The driver works, and it has no GPU.")};
}

std::string queue_title(const Model& model) {
  std::size_t waiting = 0;
  bool leased = false;
  for (const Status& host : model.picture().hosts) {
    waiting += host.queue.size();
    leased = leased || !host.leases.empty();
  }
  if (waiting > 0) return fmt::format(" Queue: {} waiting", waiting);
  return leased ? " Queue: nobody waits." : " No jobs yet: berth run -- python train.py";
}

Lines list_lines(Model& model, std::size_t height, const Drawing& with) {
  Model::Scroll& scroll = model.scroll();
  Lines lines;
  if (model.cards().empty() && model.queue().empty()) return empty_lines(model, with.sheet);
  const std::size_t wanted = 1 + model.cards().size();
  const std::size_t queue = 1 + model.queue().size();
  const std::size_t room = height - std::min(height, wanted + 1);
  const std::size_t share = std::min(queue, std::max({room, height / 3, std::size_t{3}}));
  const bool apart = wanted + 1 + share <= height;
  const std::size_t above = height - share - (apart ? 1 : 0);
  lines.push_back(title_line(with));
  scroll.step = std::max<std::size_t>(above / 2, 1);
  auto cards = part(model.cards(), model, scroll.cards, above - 1, with);
  std::move(cards.begin(), cards.end(), std::back_inserter(lines));
  if (apart) lines.emplace_back();
  lines.push_back(plain_line(Style::dim, queue_title(model)));
  auto tickets = part(model.queue(), model, scroll.queue, share - 1, with);
  std::move(tickets.begin(), tickets.end(), std::back_inserter(lines));
  return lines;
}

// A page of text below its title.
Lines page_lines(Model& model, const std::string& title, Lines text, std::size_t height) {
  std::size_t& page = model.scroll().page;
  const std::size_t room = height - std::min<std::size_t>(height, 2);
  page = std::min(page, text.size() - std::min(text.size(), room));
  model.scroll().step = std::max<std::size_t>(room / 2, 1);
  Lines lines{plain_line(Style::bold, fmt::format(" {}", title)), Line{}};
  for (std::size_t i = page; i < std::min(page + room, text.size()); ++i) {
    lines.push_back(std::move(text[i]));
  }
  return lines;
}

Lines body_lines(Model& model, std::size_t height, const Drawing& with) {
  if (model.mode() == Mode::help) {
    return page_lines(model, "Keys", help_lines(with.sheet.charset), height);
  }
  const Row* row = model.selected();
  if (model.details_open() && row != nullptr) {
    return page_lines(model, details_title(*row, with.sheet), details_lines(*row, with), height);
  }
  return list_lines(model, height, with);
}

}  // namespace

Frame make_frame(Model& model, const History& history, const Sheet& sheet, TimePoint now) {
  Frame frame;
  if (sheet.width < kLeastWidth || sheet.height < kLeastHeight) {
    const std::string text = fmt::format("Too small: {}x{}, and berth top needs {}x{}.",
                                         sheet.width, sheet.height, kLeastWidth, kLeastHeight);
    frame.lines.push_back(plain_line(Style::plain, fitted(text, sheet.width, sheet.charset)));
    return frame;
  }
  frame.lines.push_back(head_line(model, sheet, now));
  auto problem = problem_lines(model, sheet, now);
  std::move(problem.begin(), problem.end(), std::back_inserter(frame.lines));
  auto foot = foot_lines(model, sheet);
  const std::size_t height = sheet.height - frame.lines.size() - foot.size();
  const Columns columns = fit_columns(model.picture(), sheet);
  auto body = body_lines(model, height, {sheet, columns, history, now, model.viewer()});
  body.resize(height);
  std::move(body.begin(), body.end(), std::back_inserter(frame.lines));
  if (model.mode() == Mode::filter) {
    frame.cursor = {sheet.height - 1, std::min(foot.back().width(), sheet.width - 1)};
  }
  std::move(foot.begin(), foot.end(), std::back_inserter(frame.lines));
  for (Line& line : frame.lines) line = cut(std::move(line), sheet.width, sheet.charset);
  return frame;
}

}  // namespace berth::top
