// Known pairs besides the likes: pairs that were considered and not liked, pairs that are impossible, and rules that
// make pairs impossible. All are by the rows of the users at hand.
#pragma once
#include <cstdint>

namespace considerate {

struct ItemList {
  const std::int32_t* items = nullptr;
  std::int64_t count = 0;
};

struct ItemLists {
  const std::int64_t* starts = nullptr;  // [users + 1]; null: all lists are empty
  const std::int32_t* items = nullptr;
  ItemList of(std::int64_t row) const {
    if (starts == nullptr) return {};
    return {items + starts[row], starts[row + 1] - starts[row]};
  }
};

// A pair is impossible if the item is not for the user's class, or if the times of user and item do not meet.
struct Rules {
  const std::int32_t* user_class = nullptr;  // [users]
  const std::int32_t* item_class = nullptr;  // [items]
  const std::uint64_t* allowed = nullptr;    // [user classes, words] a bit for each class of items; null: all allowed
  std::int64_t words = 0;
  const double* user_times = nullptr;  // [users, 2] the first and the last moment
  const double* item_times = nullptr;  // [items, 2]; null: all times meet
  const std::int64_t* most = nullptr;  // [users] upper bound of the number of items that the rules forbid

  bool forbid(std::int64_t row, std::int32_t item) const {
    if (allowed != nullptr) {
      const std::int32_t bit = item_class[item];
      if (!(allowed[user_class[row] * words + bit / 64] >> (bit % 64) & 1)) return true;
    }
    return item_times != nullptr &&
           (item_times[2 * item] > user_times[2 * row + 1] || item_times[2 * item + 1] < user_times[2 * row]);
  }
};

struct Known {
  ItemLists considered, impossible;
  const Rules* rules = nullptr;

  // An upper bound of the number of a user's items that are in the lists or that the rules forbid.
  std::int64_t most(std::int64_t row) const {
    return considered.of(row).count + impossible.of(row).count + (rules != nullptr ? rules->most[row] : 0);
  }
};

}  // namespace considerate
