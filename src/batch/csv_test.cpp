// Tests of parsing CSV files.
#include "batch/csv.h"

#include <gtest/gtest.h>

namespace berth::batch {
namespace {

using Rows = std::vector<std::vector<std::string>>;

// The header and the rows.
Rows table(std::string_view text) {
  const auto parsed = parse_csv(text, "runs.csv");
  if (!parsed) return {{parsed.error().message}};
  Rows all{parsed->columns};
  for (const CsvRow& row : parsed->rows) all.push_back(row.values);
  return all;
}

void expect_refused(std::string_view text, const char* words) {
  const auto parsed = parse_csv(text, "runs.csv");
  ASSERT_FALSE(parsed) << text;
  EXPECT_EQ(parsed.error().kind, ErrorKind::usage);
  EXPECT_NE(parsed.error().message.find(words), std::string::npos) << parsed.error().message;
}

TEST(Csv, has_a_header_and_rows) {
  EXPECT_EQ(table("lr,seed\n1e-3,1\n1e-4,2"), (Rows{{"lr", "seed"}, {"1e-3", "1"}, {"1e-4", "2"}}));
  EXPECT_EQ(table("\xef\xbb\xbflr , seed\r\n\r\n 1e-3,\t1 \r\n  \n,\n"),
            (Rows{{"lr", "seed"}, {"1e-3", "1"}, {"", ""}}));
  EXPECT_EQ(table("lr\n"), (Rows{{"lr"}}));
}

TEST(Csv, quoted_values_have_commas_quotes_and_line_breaks) {
  EXPECT_EQ(table("a,b\n\"x, \"\"y\"\"\" , \" z\"\n\"1\n2\",5\"\n"),
            (Rows{{"a", "b"}, {"x, \"y\"", " z"}, {"1\n2", "5\""}}));
  EXPECT_EQ(table("a\n\"\"\n"), (Rows{{"a"}, {""}}));
}

TEST(Csv, rows_know_their_line) {
  const auto parsed = parse_csv("\na,b\n\n\"1\n2\",x\n3,y\n", "runs.csv").value();
  ASSERT_EQ(parsed.rows.size(), 2U);
  EXPECT_EQ(parsed.rows[0].line, 4U);
  EXPECT_EQ(parsed.rows[1].line, 6U);
}

TEST(Csv, mistakes_are_named_with_their_line) {
  expect_refused("", "'runs.csv' is empty");
  expect_refused(" \n\n", "'runs.csv' is empty");
  expect_refused("a,b\n1,2\n3\n", "line 3 of 'runs.csv' has 1 value, but the first line names 2");
  expect_refused("a\n1,2\n",
                 "line 2 of 'runs.csv' has 2 values, but the first line names 1 column");
  expect_refused("a,b,a\n", "two columns 'a'");
  expect_refused("a,,b\n", "column 2");
  expect_refused("a,b\n1,\"2\n3,4\n", "line 2 of 'runs.csv' has a quote that is not closed");
  expect_refused("a,b\n1,\"2\"x\n", "line 2 of 'runs.csv' has text behind a closing quote");
}

}  // namespace
}  // namespace berth::batch
