// The arithmetic of a sweep, built once per instruction set (CONSIDERATE_ISA names the build).
//
// A row's sum is a sum over the leaves of a fixed tree: (block of the other side, chunk of 2048 edges). Leaves are
// summed in float32 and added pairwise along the tree, so that a vertex of 10^5 edges loses nothing, and so that parts
// summed elsewhere and added along the same tree give the same bits.
#include "dense.hpp"
#include "full.hpp"
#include "lift.hpp"
#include "passes.hpp"
#include "peak.hpp"
#include "rank.hpp"
#include "score.hpp"

#define CONSIDERATE_NAME2(x) #x
#define CONSIDERATE_NAME(x) CONSIDERATE_NAME2(x)
#define CONSIDERATE_TABLE2(x) table_##x
#define CONSIDERATE_TABLE(x) CONSIDERATE_TABLE2(x)

namespace considerate {
extern const KernelTable CONSIDERATE_TABLE(CONSIDERATE_ISA);
const KernelTable CONSIDERATE_TABLE(CONSIDERATE_ISA) = {
    CONSIDERATE_NAME(CONSIDERATE_ISA), CONSIDERATE_ISA::update_rows,      CONSIDERATE_ISA::sum_rows_of,
    CONSIDERATE_ISA::solve_rows_of,    CONSIDERATE_ISA::liked_sums,       CONSIDERATE_ISA::edge_corrections,
    CONSIDERATE_ISA::group_sums,       CONSIDERATE_ISA::item_group_sums,  CONSIDERATE_ISA::top_items,
    CONSIDERATE_ISA::pair_moments,     CONSIDERATE_ISA::fma_loop,         CONSIDERATE_ISA::logistic_of_squares,
    CONSIDERATE_ISA::count_ranks,      CONSIDERATE_ISA::best_of_rows,     CONSIDERATE_ISA::count_weighted_ranks,
    CONSIDERATE_ISA::walk_lifts,       CONSIDERATE_ISA::walk_lifts_of,    CONSIDERATE_ISA::logarithms,
    CONSIDERATE_ISA::inverse_factor,   CONSIDERATE_ISA::update_full_rows,
};

}  // namespace considerate
