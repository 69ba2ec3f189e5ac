// What the view shows and what its keys mean: pictures and keys in, rows, selection and wishes out.
//
// It knows no terminal, clock, driver or harbour.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "base/terminal.h"
#include "top/pending_action.h"
#include "top/rows.h"

namespace berth::top {

// A key, as the model knows it.
enum class KeyKind : std::uint8_t {
  up,
  down,
  page_up,
  page_down,
  first,
  last,
  enter,
  escape,
  erase,
  tab,
  text,  // whatever can be typed
};

struct KeyPress {
  KeyKind kind = KeyKind::text;
  std::string text{};  // one character in UTF-8
};

enum class Mode : std::uint8_t { list, details, help, filter, confirm };

struct Notice {
  Style style = Style::plain;
  std::string text;  // as it came
};

class Model {
 public:
  explicit Model(uid_t viewer) : viewer_(viewer) {}

  // What was seen last. While it is paused it is kept, and shown afterwards.
  void set_snapshot(std::shared_ptr<const TopSnapshot> snapshot);

  // What to do outside, if anything.
  struct KeyResult {
    bool quit = false;
    std::optional<PendingAction> action{};  // confirmed
  };
  KeyResult handle_key(const KeyPress& input);

  // Said until the next key.
  void set_notice(Notice notice) { notice_ = std::move(notice); }

  const TopSnapshot& snapshot() const { return *shown_snapshot_; }
  const std::vector<Row>& gpu_rows() const { return gpu_rows_; }
  const std::vector<Row>& queue() const { return queue_; }
  // The row that is selected; nothing if there is none to select.
  const Row* selected() const;
  bool is_selected(const Row& row) const { return &row == selected(); }

  Mode mode() const { return mode_; }
  // Where the details or the question came from: what to draw behind a question.
  bool details_open() const { return mode_ == Mode::details || previous_mode_ == Mode::details; }
  SortOrder sort() const { return sort_; }
  const std::string& filter() const { return filter_; }
  bool paused() const { return paused_; }
  uid_t viewer() const { return viewer_; }
  const std::optional<Notice>& notice() const { return notice_; }
  const std::optional<PendingAction>& action() const { return action_; }

  // How far each part is scrolled, in lines; the drawing moves it to where the selection is seen.
  struct Scroll {
    std::size_t gpus = 0;
    std::size_t queue = 0;
    std::size_t page = 0;  // of details and help
    std::size_t step = 10;
  };
  Scroll& scroll() { return scroll_; }

 private:
  void rebuild_rows();
  void show_snapshot(std::shared_ptr<const TopSnapshot> snapshot);
  std::vector<const Row*> selectable_rows() const;
  void move_selection(std::ptrdiff_t by);
  void select(const Row& row);
  void switch_pane();
  bool handle_movement(const KeyPress& input);
  void ask_confirmation(const Result<PendingAction>& action);
  void edit_filter(const KeyPress& input);
  KeyResult handle_confirmation(const KeyPress& input);
  KeyResult handle_command(const KeyPress& input);

  uid_t viewer_;
  std::shared_ptr<const TopSnapshot> shown_snapshot_ = std::make_shared<const TopSnapshot>();
  std::shared_ptr<const TopSnapshot> latest_snapshot_;
  std::vector<Row> gpu_rows_;
  std::vector<Row> queue_;
  std::optional<RowKey> selected_key_;
  std::size_t selected_index_ = 0;  // of the selection among what can be selected
  Mode mode_ = Mode::list;
  Mode previous_mode_ = Mode::list;
  SortOrder sort_ = SortOrder::index;
  std::string filter_;
  bool paused_ = false;
  std::optional<Notice> notice_;
  std::optional<PendingAction> action_;
  Scroll scroll_;
};

}  // namespace berth::top
