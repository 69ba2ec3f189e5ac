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
enum class Press : std::uint8_t {
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

struct Input {
  Press press = Press::text;
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
  void take(std::shared_ptr<const TopSnapshot> picture);

  // What to do outside, if anything.
  struct Outcome {
    bool leave = false;
    std::optional<PendingAction> wish{};  // confirmed
  };
  Outcome press(const Input& input);

  // Said until the next key.
  void tell(Notice notice) { notice_ = std::move(notice); }

  const TopSnapshot& picture() const { return *shown_; }
  const std::vector<Row>& cards() const { return cards_; }
  const std::vector<Row>& queue() const { return queue_; }
  // The row that is selected; nothing if there is none to select.
  const Row* selected() const;
  bool is_selected(const Row& row) const { return &row == selected(); }

  Mode mode() const { return mode_; }
  // Where the details or the question came from: what to draw behind a question.
  bool details_open() const { return mode_ == Mode::details || behind_ == Mode::details; }
  Sort sort() const { return sort_; }
  const std::string& filter() const { return filter_; }
  bool paused() const { return paused_; }
  uid_t viewer() const { return viewer_; }
  const std::optional<Notice>& notice() const { return notice_; }
  const std::optional<PendingAction>& wish() const { return wish_; }

  // How far each part is scrolled, in lines; the drawing moves it to where the selection is seen.
  struct Scroll {
    std::size_t cards = 0;
    std::size_t queue = 0;
    std::size_t page = 0;  // of details and help
    std::size_t step = 10;
  };
  Scroll& scroll() { return scroll_; }

 private:
  void arrange();
  void show(std::shared_ptr<const TopSnapshot> picture);
  std::vector<const Row*> choices() const;
  void move(std::ptrdiff_t by);
  void select(const Row& row);
  void switch_part();
  bool move_by(const Input& input);
  void ask(const Result<PendingAction>& wish);
  void type_filter(const Input& input);
  Outcome answer(const Input& input);
  Outcome command(const Input& input);

  uid_t viewer_;
  std::shared_ptr<const TopSnapshot> shown_ = std::make_shared<const TopSnapshot>();
  std::shared_ptr<const TopSnapshot> latest_;
  std::vector<Row> cards_;
  std::vector<Row> queue_;
  std::optional<Key> selection_;
  std::size_t place_ = 0;  // of the selection among what can be selected
  Mode mode_ = Mode::list;
  Mode behind_ = Mode::list;
  Sort sort_ = Sort::index;
  std::string filter_;
  bool paused_ = false;
  std::optional<Notice> notice_;
  std::optional<PendingAction> wish_;
  Scroll scroll_;
};

}  // namespace berth::top
