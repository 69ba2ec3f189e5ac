// What the keys of the view do, and that the selection stays on what was selected.
#include "top/model.h"

#include <gtest/gtest.h>

#include "top/testing/pictures.h"

namespace berth::top {
namespace {

using namespace testing;

class ModelTest : public ::testing::Test {
 protected:
  ModelTest() { model_.take(shared(picture())); }

  std::vector<std::string> gpus() const {
    std::vector<std::string> indices;
    for (const Row& row : model_.cards()) {
      if (row.kind == RowKind::gpu) indices.push_back(to_string(row.gpu->placed.gpu.index));
    }
    return indices;
  }
  // "gpu GPU-0", "lease aaaaaaaa", "ticket cccccccc".
  std::string selected() const {
    const Row* row = model_.selected();
    if (row == nullptr) return "nothing";
    if (row->ticket != nullptr) return "ticket " + row->ticket->record.id;
    if (row->lease != nullptr) return "lease " + row->lease->id;
    return "gpu " + *row->gpu->placed.gpu.uuid;
  }
  std::string notice() const { return model_.notice() ? model_.notice()->text : ""; }

  Model model_{kViewer};
};

TEST_F(ModelTest, every_gpu_has_its_leases_below_it) {
  std::vector<RowKind> kinds;
  for (const Row& row : model_.cards()) kinds.push_back(row.kind);
  const auto g = RowKind::gpu;
  const auto l = RowKind::lease;
  EXPECT_EQ(kinds, (std::vector{g, l, g, l, g, l, g}));
  EXPECT_EQ(model_.cards()[3].said_at, "");
  EXPECT_EQ(model_.cards()[5].said_at, "1");
  EXPECT_EQ(model_.queue().size(), 4U);  // each with its reason
}

TEST_F(ModelTest, sorts_with_the_unknown_last) {
  EXPECT_EQ(gpus(), (std::vector<std::string>{"0", "1", "2", "3"}));
  type(model_, "s");
  EXPECT_EQ(model_.sort(), Sort::user);
  EXPECT_EQ(gpus(), (std::vector<std::string>{"1", "2", "0", "3"}));
  type(model_, "s");
  EXPECT_EQ(gpus(), (std::vector<std::string>{"1", "2", "0", "3"}));
  type(model_, "s");
  EXPECT_EQ(model_.sort(), Sort::utilization);
  EXPECT_EQ(gpus(), (std::vector<std::string>{"1", "2", "0", "3"}));
  type(model_, "s");
  EXPECT_EQ(gpus(), (std::vector<std::string>{"0", "1", "2", "3"}));
}

TEST_F(ModelTest, the_filter_works_while_it_is_typed) {
  type(model_, "f" + std::to_string(kViewer));
  EXPECT_EQ(gpus(), (std::vector<std::string>{"0"}));
  EXPECT_EQ(model_.queue().size(), 2U);
  model_.press({Press::erase});
  EXPECT_EQ(gpus().size(), 3U);  // both users begin alike
  model_.press({Press::enter});
  EXPECT_EQ(model_.mode(), Mode::list);
  EXPECT_EQ(gpus().size(), 3U);
  model_.press({Press::escape});
  EXPECT_EQ(gpus().size(), 4U);
}

TEST_F(ModelTest, keys_are_letters_while_one_types) {
  type(model_, "fq");
  EXPECT_EQ(model_.filter(), "q");
  EXPECT_TRUE(gpus().empty());
  EXPECT_EQ(selected(), "nothing");
  type(model_, "c");
  model_.press({Press::escape});
  EXPECT_NE(selected(), "nothing");
  EXPECT_TRUE(type(model_, "q").leave);
}

TEST_F(ModelTest, moves_over_gpus_leases_and_tickets) {
  EXPECT_EQ(selected(), "gpu GPU-0");
  type(model_, "j");
  EXPECT_EQ(selected(), "lease aaaaaaaa");
  model_.press({Press::up});
  model_.press({Press::up});
  EXPECT_EQ(selected(), "gpu GPU-0");
  type(model_, "G");
  EXPECT_EQ(selected(), "ticket dddddddd");
  type(model_, "k");
  EXPECT_EQ(selected(), "ticket cccccccc");
  model_.press({Press::tab});
  EXPECT_EQ(selected(), "gpu GPU-0");
  model_.press({Press::tab});
  EXPECT_EQ(selected(), "ticket cccccccc");
}

TEST_F(ModelTest, the_selection_stays_on_the_same_thing) {
  type(model_, "Gk");
  TopSnapshot next = picture();
  next.hosts[0].queue.insert(next.hosts[0].queue.begin(), next.hosts[0].queue[1]);
  next.hosts[0].queue[0].record.id = "eeeeeeee";
  model_.take(shared(next));
  EXPECT_EQ(selected(), "ticket cccccccc");
  type(model_, "s");
  EXPECT_EQ(selected(), "ticket cccccccc");
  next.hosts[0].queue.clear();
  model_.take(shared(next));
  EXPECT_EQ(selected(), "gpu GPU-3");  // the last that there is
  model_.take(shared({}));
  EXPECT_EQ(selected(), "nothing");
  type(model_, "jkcr");
  EXPECT_EQ(model_.mode(), Mode::list);
}

TEST_F(ModelTest, cancels_an_own_ticket_once_that_was_confirmed) {
  type(model_, "Gkc");
  ASSERT_TRUE(model_.wish());
  EXPECT_NE(model_.wish()->question.find("cccccccc (python mine.py)"), std::string::npos);
  EXPECT_FALSE(type(model_, "x").wish);
  EXPECT_EQ(notice(), "Nothing was changed.");
  type(model_, "c");
  const auto outcome = type(model_, "y");
  ASSERT_TRUE(outcome.wish);
  EXPECT_EQ(outcome.wish->kind, PendingAction::Kind::cancel);
  EXPECT_EQ(outcome.wish->id, "cccccccc");
  EXPECT_EQ(model_.mode(), Mode::list);
}

TEST_F(ModelTest, enter_and_escape_are_no_yes) {
  type(model_, "Gkc");
  EXPECT_FALSE(model_.press({Press::enter}).wish);
  type(model_, "c");
  EXPECT_FALSE(model_.press({Press::escape}).wish);
  EXPECT_FALSE(type(model_, "y").wish);
}

TEST_F(ModelTest, says_why_not) {
  type(model_, "Gc");
  EXPECT_EQ(notice(), "ticket dddddddd belongs to 4000001, who alone (or root) can cancel it");
  type(model_, "r");
  EXPECT_EQ(notice(), "r gives a lease back, and this is a ticket: c cancels it");
  type(model_, "gc");
  EXPECT_EQ(notice(), "c cancels a ticket: select one in the queue");
  type(model_, "jjr");
  EXPECT_EQ(notice(), "lease bbbbbbbb belongs to 4000001, who alone (or root) can give it back");
  type(model_, "jjjjr");  // GPU 3
  EXPECT_EQ(notice(), "nobody has a lease on GPU 3");
  EXPECT_EQ(model_.mode(), Mode::list);
}

TEST_F(ModelTest, gives_a_shells_lease_back_also_from_its_gpu) {
  type(model_, "r");
  ASSERT_TRUE(model_.wish());
  EXPECT_NE(model_.wish()->question.find("Others can have GPU 0"), std::string::npos);
  const auto outcome = type(model_, "y");
  ASSERT_TRUE(outcome.wish);
  EXPECT_EQ(outcome.wish->kind, PendingAction::Kind::release);
  EXPECT_EQ(outcome.wish->id, "aaaaaaaa");
}

TEST_F(ModelTest, a_jobs_lease_ends_with_its_job_and_elsewhere_is_elsewhere) {
  TopSnapshot next = picture();
  next.hosts[0].leases[0].holder = HolderKind::job;
  model_.take(shared(next));
  type(model_, "r");
  EXPECT_EQ(notice(),
            "lease aaaaaaaa is its job's, and ends with it: stop pid 4711 to have GPU 0 back");
  next = picture();
  next.hosts[0].elsewhere = true;
  model_.take(shared(next));
  type(model_, "r");
  EXPECT_EQ(notice(), "lease aaaaaaaa is on gpu-a; there: berth release aaaaaaaa");
}

TEST_F(ModelTest, root_may_end_what_is_anybodys_and_is_told_whose_it_is) {
  Model root(0);
  root.take(shared(picture()));
  type(root, "Gc");
  ASSERT_TRUE(root.wish());
  EXPECT_NE(root.wish()->question.find("dddddddd of 4000001"), std::string::npos);
}

TEST_F(ModelTest, a_pause_keeps_the_picture) {
  type(model_, "p");
  model_.take(shared({}));
  EXPECT_EQ(gpus().size(), 4U);
  type(model_, "p");
  EXPECT_EQ(gpus().size(), 0U);
}

TEST_F(ModelTest, details_close_when_what_they_are_of_has_ended) {
  type(model_, "G");
  model_.press({Press::enter});
  EXPECT_EQ(model_.mode(), Mode::details);
  TopSnapshot next = picture();
  next.hosts[0].queue.pop_back();
  model_.take(shared(next));
  EXPECT_EQ(model_.mode(), Mode::list);
  EXPECT_EQ(notice(), "That has ended.");
}

}  // namespace
}  // namespace berth::top
