// Tables of entries, and where parts of scratch memory lie.
#include "providers/rows/entries.h"

#include <gtest/gtest.h>

#include <vector>

#include "providers/rows/blanks.h"
#include "providers/rows/places.h"
#include "providers/rows/tables.h"

namespace longspan::rows {
namespace {

TEST(RowsEntries, ArePackedOneBehindTheOther) {
  const std::vector<Entry> entries = {{.q_row = 10, .k_row = 20, .nq = 3, .nk = 5},
                                      {.q_row = 40, .k_row = 50, .nq = 2, .nk = 0},
                                      {.q_row = 60, .k_row = 70, .nq = 1, .nk = 4}};
  const std::vector<DeviceEntry> table = device_entries(entries);
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table[2].q_row, 60);
  EXPECT_EQ(table[1].q_begin, 3);
  EXPECT_EQ(table[2].q_begin, 5);
  EXPECT_EQ(table[2].k_begin, 5);
  const EntryList list = list_of(entries, table.data());
  EXPECT_EQ(list.count, 3);
  EXPECT_EQ(list.rows_q, 6);
  EXPECT_EQ(list.rows_k, 9);
  EXPECT_EQ(list.entries, table.data());
}

TEST(RowsEntries, KeyHeadsOfAPartOfAGroup) {
  EXPECT_EQ(key_heads({.heads_q = 8, .group = 4}), 2);
  EXPECT_EQ(key_heads({.heads_q = 3, .group = 4, .group_offset = 2}), 2);
  EXPECT_EQ(key_heads({.heads_q = 2, .group = 4, .group_offset = 1}), 1);
}

TEST(RowsBlanks, AreQueriesThenKeys) {
  const std::vector<Entry> entries = entries_of({.q = {{3, 5}}, .k = {{0, 7}}});
  EXPECT_EQ(entries, (std::vector<Entry>{{.q_row = 3, .nq = 2}, {.k_row = 0, .nk = 7}}));
}

TEST(RowsPlaces, AreAligned) {
  Places places;
  EXPECT_EQ(places.take(1), 0u);
  EXPECT_EQ(places.take(256), 256u);
  EXPECT_EQ(places.take(0), 512u);
  EXPECT_EQ(places.end(), 512u);
}

TEST(RowsTables, AreAlignedAndKeepTheirBytes) {
  Tables tables;
  EXPECT_EQ(tables.append(std::vector<int32_t>{1}), 0u);
  EXPECT_EQ(tables.append(std::vector<int32_t>{2, 3}), 16u);
  EXPECT_EQ(tables.append_entries({}), 32u);
  ASSERT_EQ(tables.bytes().size(), 32u);
  EXPECT_EQ(tables.bytes()[20], std::byte{3});
}

}  // namespace
}  // namespace longspan::rows
