// Handles keys and keeps the selection; see model.h.
#include "top/model.h"

#include <algorithm>
#include <utility>

namespace berth::top {
namespace {

constexpr std::size_t kMaxFilterLength = 64;

// Removes the last UTF-8 character.
void erase_character(std::string& text) {
  while (!text.empty()) {
    const bool inside = (static_cast<unsigned char>(text.back()) & 0xC0U) == 0x80;
    text.pop_back();
    if (!inside) return;
  }
}

// The key of the GPU on which the lease of the key is shown; nullopt if it is not the key of a
// lease.
std::optional<RowKey> gpu_key_of(RowKey key) {
  if (key.kind != RowKind::lease) return std::nullopt;
  key.kind = RowKind::gpu;
  key.id.clear();
  return key;
}

// automatic, compact, leases, processes, automatic
std::optional<RowDetail> next_detail(std::optional<RowDetail> detail) {
  if (!detail) return RowDetail::compact;
  if (*detail == RowDetail::processes) return std::nullopt;
  return static_cast<RowDetail>(static_cast<std::uint8_t>(*detail) + 1);
}

}  // namespace

void Model::set_snapshot(std::shared_ptr<const TopSnapshot> snapshot) {
  latest_snapshot_ = std::move(snapshot);
  if (!paused_) show_snapshot(latest_snapshot_);
}

void Model::show_snapshot(std::shared_ptr<const TopSnapshot> snapshot) {
  shown_snapshot_ = std::move(snapshot);
  rebuild_rows();
}

std::vector<const Row*> Model::selectable_rows() const {
  std::vector<const Row*> all;
  for (const auto* rows : {&gpu_rows_, &queue_}) {
    for (const Row& row : *rows) {
      if (row.is_selectable()) all.push_back(&row);
    }
  }
  return all;
}

// The same GPU, lease or ticket stays selected, wherever its row is now. If it has no row any more,
// the GPU of the lease is selected, or the row that is now at its position.
void Model::rebuild_rows() {
  gpu_rows_ = make_gpu_rows(*shown_snapshot_, sort_, filter_, detail_);
  queue_ = make_queue_rows(*shown_snapshot_, filter_, shows_reasons_);
  const auto all = selectable_rows();
  const auto find = [&](const std::optional<RowKey>& key) {
    return std::find_if(all.begin(), all.end(),
                        [&](const Row* row) { return make_row_key(*row) == key; });
  };
  if (const auto same = find(selected_key_); same != all.end()) {
    selected_index_ = static_cast<std::size_t>(same - all.begin());
    return;
  }
  const auto gpu = find(selected_key_ ? gpu_key_of(*selected_key_) : std::nullopt);
  if (gpu != all.end()) selected_index_ = static_cast<std::size_t>(gpu - all.begin());
  selected_index_ = all.empty() ? 0 : std::min(selected_index_, all.size() - 1);
  selected_key_ = all.empty() ? std::nullopt : std::optional(make_row_key(*all[selected_index_]));
  // The details page (or the question above it) would suddenly be about another row: close it.
  if (mode_ == Mode::details || (mode_ == Mode::confirm && previous_mode_ == Mode::details)) {
    mode_ = previous_mode_ = Mode::list;
    action_.reset();
    notice_ = Notice{Style::notice, "The selected entry no longer exists."};
  }
}

const Row* Model::selected() const {
  const auto all = selectable_rows();
  return all.empty() ? nullptr : all[std::min(selected_index_, all.size() - 1)];
}

void Model::select(const RowKey& key) {
  selected_key_ = key;
  rebuild_rows();
}

void Model::fit_list(std::size_t height) {
  struct Layout {
    RowDetail detail;
    bool shows_reasons;
  };
  std::vector<Layout> layouts;
  for (const bool shows_reasons : {true, false}) {
    for (const RowDetail detail : {RowDetail::processes, RowDetail::leases, RowDetail::compact}) {
      if (!chosen_detail_ || *chosen_detail_ == detail) layouts.push_back({detail, shows_reasons});
    }
  }
  const auto fits = [&](const Layout& layout) {
    const auto queue = make_queue_rows(*shown_snapshot_, filter_, layout.shows_reasons).size();
    const auto gpus = make_gpu_rows(*shown_snapshot_, sort_, filter_, layout.detail).size();
    return gpus + (layout.shows_reasons ? queue : std::min(queue, height / 3)) <= height;
  };
  const auto found = std::find_if(layouts.begin(), layouts.end(), fits);
  const Layout& layout = found == layouts.end() ? layouts.back() : *found;
  if (layout.detail == detail_ && layout.shows_reasons == shows_reasons_) return;
  detail_ = layout.detail;
  shows_reasons_ = layout.shows_reasons;
  rebuild_rows();
}

void Model::handle_click(const std::optional<RowKey>& target, bool is_double) {
  if (!target || (mode_ != Mode::list && mode_ != Mode::filter)) return;
  const auto all = selectable_rows();
  const bool exists = std::any_of(all.begin(), all.end(),
                                  [&](const Row* row) { return make_row_key(*row) == *target; });
  if (!exists) return;  // it ended after the screen was drawn
  notice_.reset();
  select(*target);
  if (!is_double) return;
  mode_ = Mode::details;
  scroll_.page = 0;
}

void Model::move_selection(std::ptrdiff_t by) {
  const auto all = selectable_rows();
  if (all.empty()) return;
  const auto last = static_cast<std::ptrdiff_t>(all.size()) - 1;
  const auto to =
      std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(selected_index_) + by, 0, last);
  select(make_row_key(*all[static_cast<std::size_t>(to)]));
}

// Selects the first row of the other pane: GPUs or queue.
void Model::switch_pane() {
  const Row* now = selected();
  if (now == nullptr) return;
  const auto& other = now->ticket == nullptr ? queue_ : gpu_rows_;
  const auto found =
      std::find_if(other.begin(), other.end(), [](const Row& row) { return row.is_selectable(); });
  if (found != other.end()) select(make_row_key(*found));
}

bool Model::handle_movement(const KeyPress& input) {
  const auto step = static_cast<std::ptrdiff_t>(scroll_.step);
  constexpr std::ptrdiff_t kAll = 1'000'000;
  std::ptrdiff_t by = 0;
  const bool wheel = input.kind == KeyKind::wheel_up || input.kind == KeyKind::wheel_down;
  if (input.kind == KeyKind::up || input.text == "k") by = -1;
  if (input.kind == KeyKind::down || input.text == "j") by = 1;
  const std::ptrdiff_t wheel_step = mode_ == Mode::list ? 1 : 3;
  if (wheel) by = input.kind == KeyKind::wheel_up ? -wheel_step : wheel_step;
  if (input.kind == KeyKind::page_up) by = -step;
  if (input.kind == KeyKind::page_down) by = step;
  if (input.kind == KeyKind::first || input.text == "g") by = -kAll;
  if (input.kind == KeyKind::last || input.text == "G") by = kAll;
  if (by == 0) return false;
  if (mode_ == Mode::list) {
    move_selection(by);
  } else {  // details or help
    const auto to = static_cast<std::ptrdiff_t>(scroll_.page) + by;
    scroll_.page = static_cast<std::size_t>(std::max<std::ptrdiff_t>(to, 0));
  }
  return true;
}

void Model::ask_confirmation(const Result<PendingAction>& action) {
  if (!action) {
    notice_ = Notice{Style::warning, action.error().message};
    return;
  }
  action_ = *action;
  previous_mode_ = mode_;
  mode_ = Mode::confirm;
}

void Model::edit_filter(const KeyPress& input) {
  if (input.kind == KeyKind::enter) mode_ = Mode::list;
  if (input.kind == KeyKind::escape) {
    filter_.clear();
    mode_ = Mode::list;
  }
  if (input.kind == KeyKind::erase) erase_character(filter_);
  if (input.kind == KeyKind::text && filter_.size() < kMaxFilterLength) filter_ += input.text;
  // Arrow keys move the selection while the user types.
  if (input.kind == KeyKind::up || input.kind == KeyKind::wheel_up) move_selection(-1);
  if (input.kind == KeyKind::down || input.kind == KeyKind::wheel_down) move_selection(1);
  rebuild_rows();
}

// Any key but y or Y means no.
Model::KeyResult Model::handle_confirmation(const KeyPress& input) {
  mode_ = std::exchange(previous_mode_, Mode::list);
  KeyResult result;
  if (input.text == "y" || input.text == "Y") {
    result.action = std::exchange(action_, std::nullopt);
  } else {
    action_.reset();
    notice_ = Notice{Style::plain, "Nothing was changed."};
  }
  return result;
}

Model::KeyResult Model::handle_key(const KeyPress& input) {
  const bool wheel = input.kind == KeyKind::wheel_up || input.kind == KeyKind::wheel_down;
  if (mode_ == Mode::confirm && wheel) return {};  // not an answer to the question
  notice_.reset();
  if (mode_ == Mode::filter) {
    edit_filter(input);
    return {};
  }
  if (mode_ == Mode::confirm) return handle_confirmation(input);
  if (handle_movement(input)) return {};
  return handle_command(input);
}

Model::KeyResult Model::handle_command(const KeyPress& input) {
  const bool list = mode_ == Mode::list;
  const std::string& key = input.text;
  const Row* row = selected();
  if (key == "q" || input.kind == KeyKind::escape) {
    if (list && key == "q") return {.quit = true};
    if (list && !filter_.empty()) {
      filter_.clear();
      rebuild_rows();
    }
    mode_ = Mode::list;
  } else if (key == "h" || key == "?") {
    mode_ = mode_ == Mode::help ? Mode::list : Mode::help;
    scroll_.page = 0;
  } else if (input.kind == KeyKind::enter) {
    if (list && row == nullptr) return {};
    mode_ = list ? Mode::details : Mode::list;
    scroll_.page = 0;
  } else if (key == "p" || key == " ") {
    paused_ = !paused_;
    if (!paused_ && latest_snapshot_) show_snapshot(latest_snapshot_);
  } else if (mode_ == Mode::help) {
    return {};
  } else if (key == "c" && row != nullptr) {
    ask_confirmation(make_cancel_action(*row, viewer_));
  } else if (key == "r" && row != nullptr) {
    ask_confirmation(make_release_action(*row, viewer_));
  } else if (list) {
    handle_list_command(input);
  }
  return {};
}

void Model::handle_list_command(const KeyPress& input) {
  if (input.text == "s") {
    sort_ = next_sort_order(sort_);
    rebuild_rows();
  } else if (input.text == "v") {
    chosen_detail_ = next_detail(chosen_detail_);  // fit_list() makes the rows
  } else if (input.text == "f" || input.text == "/") {
    mode_ = Mode::filter;
  } else if (input.kind == KeyKind::tab) {
    switch_pane();
  }
}

}  // namespace berth::top
