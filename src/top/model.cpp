// Keys and their meaning; see model.h.
#include "top/model.h"

#include <algorithm>
#include <utility>

namespace berth::top {
namespace {

constexpr std::size_t kLongestFilter = 64;

// Off its end: a whole character in UTF-8.
void erase_character(std::string& text) {
  while (!text.empty()) {
    const bool inside = (static_cast<unsigned char>(text.back()) & 0xC0U) == 0x80;
    text.pop_back();
    if (!inside) return;
  }
}

}  // namespace

void Model::take(std::shared_ptr<const TopSnapshot> picture) {
  latest_ = std::move(picture);
  if (!paused_) show(latest_);
}

void Model::show(std::shared_ptr<const TopSnapshot> picture) {
  shown_ = std::move(picture);
  arrange();
}

std::vector<const Row*> Model::choices() const {
  std::vector<const Row*> all;
  for (const auto* rows : {&cards_, &queue_}) {
    for (const Row& row : *rows) {
      if (row.selectable()) all.push_back(&row);
    }
  }
  return all;
}

// The same thing stays selected wherever it stands now; if it is gone, what has taken its place.
void Model::arrange() {
  cards_ = card_rows(*shown_, sort_, filter_);
  queue_ = queue_rows(*shown_, filter_);
  const auto all = choices();
  const auto same = std::find_if(all.begin(), all.end(),
                                 [&](const Row* row) { return key_of(*row) == selection_; });
  if (same != all.end()) {
    place_ = static_cast<std::size_t>(same - all.begin());
    return;
  }
  place_ = all.empty() ? 0 : std::min(place_, all.size() - 1);
  selection_ = all.empty() ? std::nullopt : std::optional(key_of(*all[place_]));
  // Details of what is gone would be of something else all of a sudden.
  if (mode_ == Mode::details || (mode_ == Mode::confirm && behind_ == Mode::details)) {
    mode_ = behind_ = Mode::list;
    wish_.reset();
    notice_ = Notice{Style::notice, "That has ended."};
  }
}

const Row* Model::selected() const {
  const auto all = choices();
  return all.empty() ? nullptr : all[std::min(place_, all.size() - 1)];
}

void Model::select(const Row& row) {
  selection_ = key_of(row);
  arrange();
}

void Model::move(std::ptrdiff_t by) {
  const auto all = choices();
  if (all.empty()) return;
  const auto last = static_cast<std::ptrdiff_t>(all.size()) - 1;
  const auto to = std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(place_) + by, 0, last);
  select(*all[static_cast<std::size_t>(to)]);
}

// From the cards to the queue, and back.
void Model::switch_part() {
  const Row* now = selected();
  if (now == nullptr) return;
  const auto& other = now->ticket == nullptr ? queue_ : cards_;
  const auto found =
      std::find_if(other.begin(), other.end(), [](const Row& row) { return row.selectable(); });
  if (found != other.end()) select(*found);
}

bool Model::move_by(const Input& input) {
  const auto step = static_cast<std::ptrdiff_t>(scroll_.step);
  constexpr std::ptrdiff_t kAll = 1'000'000;
  std::ptrdiff_t by = 0;
  if (input.press == Press::up || input.text == "k") by = -1;
  if (input.press == Press::down || input.text == "j") by = 1;
  if (input.press == Press::page_up) by = -step;
  if (input.press == Press::page_down) by = step;
  if (input.press == Press::first || input.text == "g") by = -kAll;
  if (input.press == Press::last || input.text == "G") by = kAll;
  if (by == 0) return false;
  if (mode_ == Mode::list) {
    move(by);
  } else {  // a page of text
    const auto to = static_cast<std::ptrdiff_t>(scroll_.page) + by;
    scroll_.page = static_cast<std::size_t>(std::max<std::ptrdiff_t>(to, 0));
  }
  return true;
}

void Model::ask(const Result<PendingAction>& wish) {
  if (!wish) {
    notice_ = Notice{Style::warning, wish.error().message};
    return;
  }
  wish_ = *wish;
  behind_ = mode_;
  mode_ = Mode::confirm;
}

void Model::type_filter(const Input& input) {
  if (input.press == Press::enter) mode_ = Mode::list;
  if (input.press == Press::escape) {
    filter_.clear();
    mode_ = Mode::list;
  }
  if (input.press == Press::erase) erase_character(filter_);
  if (input.press == Press::text && filter_.size() < kLongestFilter) filter_ += input.text;
  // Arrows move the selection while one types.
  if (input.press == Press::up) move(-1);
  if (input.press == Press::down) move(1);
  arrange();
}

// Only a plain yes is one.
Model::Outcome Model::answer(const Input& input) {
  mode_ = std::exchange(behind_, Mode::list);
  Outcome outcome;
  if (input.text == "y" || input.text == "Y") {
    outcome.wish = std::exchange(wish_, std::nullopt);
  } else {
    wish_.reset();
    notice_ = Notice{Style::plain, "Nothing was changed."};
  }
  return outcome;
}

Model::Outcome Model::press(const Input& input) {
  notice_.reset();
  if (mode_ == Mode::filter) {
    type_filter(input);
    return {};
  }
  if (mode_ == Mode::confirm) return answer(input);
  if (move_by(input)) return {};
  return command(input);
}

Model::Outcome Model::command(const Input& input) {
  const bool list = mode_ == Mode::list;
  const std::string& key = input.text;
  const Row* row = selected();
  if (key == "q" || input.press == Press::escape) {
    if (list && key == "q") return {.leave = true};
    if (list && !filter_.empty()) {
      filter_.clear();
      arrange();
    }
    mode_ = Mode::list;
  } else if (key == "h" || key == "?") {
    mode_ = mode_ == Mode::help ? Mode::list : Mode::help;
    scroll_.page = 0;
  } else if (input.press == Press::enter) {
    if (list && row == nullptr) return {};
    mode_ = list ? Mode::details : Mode::list;
    scroll_.page = 0;
  } else if (key == "p" || key == " ") {
    paused_ = !paused_;
    if (!paused_ && latest_) show(latest_);
  } else if (mode_ == Mode::help) {
    return {};
  } else if (key == "c" && row != nullptr) {
    ask(wish_to_cancel(*row, viewer_));
  } else if (key == "r" && row != nullptr) {
    ask(wish_to_release(*row, viewer_));
  } else if (list && key == "s") {
    sort_ = next(sort_);
    arrange();
  } else if (list && (key == "f" || key == "/")) {
    mode_ = Mode::filter;
  } else if (list && input.press == Press::tab) {
    switch_part();
  }
  return {};
}

}  // namespace berth::top
