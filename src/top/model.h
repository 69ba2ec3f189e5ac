// The state of the view of `berth top`, without its drawing: which rows there are, which is
// selected, the mode, the filter, and what a key does.
//
// Independent of the terminal, the clock, the driver and the harbour.
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
  text,  // a printable character
  wheel_up,
  wheel_down,
  click,
  double_click,
};

// A key, or an action of the mouse.
struct KeyPress {
  KeyKind kind = KeyKind::text;
  std::string text{};    // one character in UTF-8
  std::size_t line = 0;  // of the screen: where the mouse was clicked
};

enum class Mode : std::uint8_t { list, details, help, filter, confirm };

struct Notice {
  Style style = Style::plain;
  std::string text;  // not yet escaped for the terminal
};

// Used by one thread.
class Model {
 public:
  // `viewer` is the user who runs `berth top`.
  explicit Model(uid_t viewer) : viewer_(viewer) {}

  // Shows the snapshot; while the view is paused, only keeps it for the end of the pause.
  void set_snapshot(std::shared_ptr<const TopSnapshot> snapshot);

  // What the caller must do after a key.
  struct KeyResult {
    bool quit = false;
    std::optional<PendingAction> action{};  // the user has confirmed it
  };
  KeyResult handle_key(const KeyPress& input);

  // A click on a line that shows `target` selects it, a double click opens its details.
  void handle_click(const std::optional<RowKey>& target, bool is_double);

  // Chooses what the list shows, so that `height` lines have room for it: first the processes are
  // left out, then the rows of leases (see RowDetail::compact), unless the user has chosen the
  // rows; then the reasons of tickets. A queue without its reasons may be longer than its third of
  // `height`. Builds the rows several times, so call it after changes, not for each frame.
  void fit_list(std::size_t height);

  // The next key removes the notice.
  void set_notice(Notice notice) { notice_ = std::move(notice); }

  const TopSnapshot& snapshot() const { return *shown_snapshot_; }
  const std::vector<Row>& gpu_rows() const { return gpu_rows_; }
  const std::vector<Row>& queue() const { return queue_; }
  // Null if there is no row that can be selected.
  const Row* selected() const;
  bool is_selected(const Row& row) const { return &row == selected(); }

  Mode mode() const { return mode_; }
  // Whether the details are shown, also while the user must confirm an action from there.
  bool details_open() const { return mode_ == Mode::details || previous_mode_ == Mode::details; }
  SortOrder sort() const { return sort_; }
  RowDetail detail() const { return detail_; }
  // What the user has chosen; nullopt: by the size of the screen.
  std::optional<RowDetail> chosen_detail() const { return chosen_detail_; }
  const std::string& filter() const { return filter_; }
  bool paused() const { return paused_; }
  uid_t viewer() const { return viewer_; }
  const std::optional<Notice>& notice() const { return notice_; }
  const std::optional<PendingAction>& action() const { return action_; }

  // How far each pane is scrolled, in lines. render_frame() changes it to show the selection.
  struct Scroll {
    std::size_t gpus = 0;
    std::size_t queue = 0;
    std::size_t page = 0;   // of details and help
    std::size_t step = 10;  // of page up and page down
  };
  Scroll& scroll() { return scroll_; }

 private:
  void rebuild_rows();
  void show_snapshot(std::shared_ptr<const TopSnapshot> snapshot);
  std::vector<const Row*> selectable_rows() const;
  void move_selection(std::ptrdiff_t by);
  void select(const RowKey& key);
  void switch_pane();
  bool handle_movement(const KeyPress& input);
  void ask_confirmation(const Result<PendingAction>& action);
  void edit_filter(const KeyPress& input);
  KeyResult handle_confirmation(const KeyPress& input);
  KeyResult handle_command(const KeyPress& input);
  void handle_list_command(const KeyPress& input);

  uid_t viewer_;
  std::shared_ptr<const TopSnapshot> shown_snapshot_ = std::make_shared<const TopSnapshot>();
  std::shared_ptr<const TopSnapshot> latest_snapshot_;  // newer than the shown one while paused
  std::vector<Row> gpu_rows_;
  std::vector<Row> queue_;
  std::optional<RowKey> selected_key_;
  std::size_t selected_index_ = 0;  // in selectable_rows()
  Mode mode_ = Mode::list;
  Mode previous_mode_ = Mode::list;
  SortOrder sort_ = SortOrder::index;
  RowDetail detail_ = RowDetail::leases;
  std::optional<RowDetail> chosen_detail_;
  bool shows_reasons_ = true;  // of tickets
  std::string filter_;
  bool paused_ = false;
  std::optional<Notice> notice_;
  std::optional<PendingAction> action_;
  Scroll scroll_;
};

}  // namespace berth::top
