// Sorting of pairs into adjacency lists, and the lists of the other orientation.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace considerate {

// Sort pairs by row then column, and drop repeated ones: a counting sort by row, then each row is sorted.
// NumPy: unique(rows * columns + column).
inline std::int64_t sort_pairs(const std::int32_t* rows, const std::int32_t* columns, std::int64_t edges,
                               std::int64_t row_count, std::int64_t* starts, std::int32_t* indices) {
  std::fill(starts, starts + row_count + 1, 0);
  for (std::int64_t e = 0; e < edges; ++e) ++starts[rows[e] + 1];
  for (std::int64_t m = 0; m < row_count; ++m) starts[m + 1] += starts[m];
  {
    std::vector<std::int64_t> at(starts, starts + row_count);
    for (std::int64_t e = 0; e < edges; ++e) indices[at[static_cast<std::size_t>(rows[e])]++] = columns[e];
  }
  std::int64_t kept = 0;
  for (std::int64_t m = 0, begin = 0; m < row_count; ++m) {
    const std::int64_t end = starts[m + 1];
    starts[m] = kept;
    if (!std::is_sorted(indices + begin, indices + end)) std::sort(indices + begin, indices + end);
    for (std::int64_t e = begin; e < end; ++e)
      if (e == begin || indices[e] != indices[e - 1]) {
        const std::int32_t keep = indices[e];
        indices[kept++] = keep;
      }
    begin = end;
  }
  starts[row_count] = kept;
  return kept;
}

// Keep the edges to some columns: the number of them in each row, and their columns. NumPy: indices[keep[indices]].
inline std::int64_t keep_columns(const std::int64_t* starts, const std::int32_t* indices, std::int64_t rows,
                                 const bool* keep, std::int32_t* counts, std::int32_t* kept) {
  std::int64_t at = 0;
  for (std::int64_t m = 0; m < rows; ++m) {
    const std::int64_t before = at;
    for (std::int64_t e = starts[m]; e < starts[m + 1]; ++e) {
      kept[at] = indices[e];
      at += keep[indices[e]];
    }
    counts[m] = static_cast<std::int32_t>(at - before);
  }
  return at;
}

// Count how often each bucket of 2^shift columns occurs in a slice of rows.
inline void count_columns(const std::int32_t* indices, std::int64_t edges, int shift, std::int64_t* counts) {
  for (std::int64_t e = 0; e < edges; ++e) ++counts[indices[e] >> shift];
}

// Turn the counts of each slice of rows, [slices, buckets], into the start of its part of each bucket, and set the
// start of each bucket. NumPy: starts = [0, cumsum(counts.sum(0))]; counts = starts[:-1] + cumsum(counts, 0) - counts.
inline void counts_to_places(std::int64_t* counts, std::int64_t slices, std::int64_t buckets, std::int64_t* starts) {
  std::int64_t at = 0;
  for (std::int64_t n = 0; n < buckets; ++n) {
    starts[n] = at;
    for (std::int64_t* count = counts + n; count < counts + slices * buckets; count += buckets) {
      const std::int64_t next = at + *count;
      *count = at;
      at = next;
    }
  }
  starts[buckets] = at;
}

// Put a slice's rows under the buckets of their columns. `places` is the start of the slice's part of each bucket, and
// moves on. The low bits of the columns go to `low`, unless a bucket is one column.
inline void scatter_rows(const std::int64_t* starts, const std::int32_t* indices, std::int64_t first, std::int64_t last,
                         int shift, std::int64_t* places, std::int32_t* rows_out, std::uint16_t* low) {
  const std::int32_t mask = (1 << shift) - 1;
  for (std::int64_t m = first; m < last; ++m)
    for (std::int64_t e = starts[m], end = starts[m + 1]; e < end; ++e) {
      const std::int32_t column = indices[e];
      const std::int64_t at = places[column >> shift]++;
      rows_out[at] = static_cast<std::int32_t>(m);
      if (low) low[at] = static_cast<std::uint16_t>(column & mask);
    }
}

// Sort the rows of one bucket by the low bits of their columns, and set the starts of its columns, from `begin` on. The
// rows of a column keep their order. NumPy: rows = rows[argsort(low, kind="stable")].
inline void sort_bucket(const std::uint16_t* low, std::int32_t* rows, std::int64_t edges, std::int64_t begin,
                        std::int64_t* starts, std::int64_t columns) {
  std::vector<std::int64_t> places(static_cast<std::size_t>(columns), 0);
  for (std::int64_t e = 0; e < edges; ++e) ++places[low[e]];
  std::int64_t at = 0;
  for (std::int64_t n = 0; n < columns; ++n) {
    const std::int64_t count = places[static_cast<std::size_t>(n)];
    places[static_cast<std::size_t>(n)] = at;
    starts[n] = begin + at;
    at += count;
  }
  const std::vector<std::int32_t> unsorted(rows, rows + edges);
  for (std::int64_t e = 0; e < edges; ++e) rows[places[low[e]]++] = unsorted[static_cast<std::size_t>(e)];
}

// Add the amounts of pairs, in any order, to their edges. Amounts are whole numbers, so that no order changes the sums.
// NumPy: bincount(place of each pair among the edges, amounts). Returns false if a pair is no edge.
inline bool add_to_edges(const std::int64_t* starts, const std::int32_t* indices, const std::int32_t* rows,
                         const std::int32_t* columns, const std::int64_t* amounts, std::int64_t pairs,
                         std::int64_t* sums) {
  for (std::int64_t e = 0; e < pairs; ++e) {
    const std::int32_t *first = indices + starts[rows[e]], *last = indices + starts[rows[e] + 1];
    const std::int32_t* at = std::lower_bound(first, last, columns[e]);
    if (at == last || *at != columns[e]) return false;
    sums[at - indices] += amounts[e];
  }
  return true;
}

// Put the weights of edges in the order of the other orientation; `starts_out` are the starts of its columns.
// NumPy: weights[argsort(indices, kind="stable")].
inline void transpose_weights(const std::int32_t* indices, const float* weights, std::int64_t edges,
                              const std::int64_t* starts_out, std::int64_t columns, float* out) {
  std::vector<std::int64_t> places(starts_out, starts_out + columns);
  for (std::int64_t e = 0; e < edges; ++e) out[places[static_cast<std::size_t>(indices[e])]++] = weights[e];
}

}  // namespace considerate
