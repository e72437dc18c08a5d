// Natural-gradient sums over edges (eq. 15, 16 and 19): a panel of edges at a time, in register tiles.
#pragma once
#include <bit>

#include "buffer.hpp"
#include "simd.hpp"

namespace considerate::CONSIDERATE_ISA {

constexpr int kPanel = 64;             // edges gathered at a time, at most
constexpr std::int64_t kChunk = 2048;  // edges in a leaf of the tree

struct Shape {
  std::int64_t K, KP, K4;   // number of coordinates; padded to 8; padded to 4, for the rows of the triangle
  std::int64_t row, first;  // padded length of a whole row's means; the first coordinate
  std::int64_t width;       // length of the blocks of coordinates before the last; of the row if there is one block
  explicit Shape(const Pass& pass)
      : K(pass.block_size ? pass.block_size : pass.own.factors),
        KP(padded(K)),
        K4((K + 3) / 4 * 4),
        row(padded(pass.own.factors)),
        first(pass.block_first),
        width(pass.block_size ? block_width(pass.own.factors) : row) {}
  bool whole() const { return KP == row; }
  std::int64_t second() const { return K4 * KP; }
  std::int64_t size() const { return second() + KP + 8; }
  // Number of edges in a panel: its two copies of the gathered means stay in the first cache.
  int panel() const {
    const std::int64_t edges = 3072 / KP / 8 * 8;
    return static_cast<int>(edges > kPanel ? kPanel : edges < 16 ? 16 : edges);
  }
};

// The sums of one node of the tree, in one buffer: the lower triangle by rows of KP, then z, then the bias's two.
struct Node {
  std::uint64_t place = 0;  // place of its leaf, or of any leaf of its subtree
  float* data = nullptr;
};

static inline void add_into(const Shape& shape, float* left, const float* right) {
  for (std::int64_t i0 = 0; i0 < shape.K4; i0 += 4) {
    const std::int64_t columns = (i0 + 4 + 7) / 8 * 8;
    for (std::int64_t i = i0; i < i0 + 4; ++i)
      for (std::int64_t j = 0; j < columns; j += 8)
        store8(left + i * shape.KP + j, load8(left + i * shape.KP + j) + load8(right + i * shape.KP + j));
  }
  for (std::int64_t j = shape.second(); j < shape.size(); j += 8) store8(left + j, load8(left + j) + load8(right + j));
}

static inline float* new_node(const Shape& shape) {
  const std::size_t bytes = (static_cast<std::size_t>(shape.size()) * sizeof(float) + 63) / 64 * 64;
  void* data = std::aligned_alloc(64, bytes);
  if (!data) throw std::bad_alloc();
  std::memset(data, 0, bytes);
  return static_cast<float*>(data);
}

// A stack that adds leaves along the binary trie of their places. Leaves come in ascending order of places.
class Tree {
 public:
  static constexpr std::int64_t kDepth = 66;  // one node for each bit of a place, and two
  Tree() = default;
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  ~Tree() {
    for (std::int64_t i = 0; i < made_; ++i) std::free(nodes_[i].data);
  }

  // The buffer for the next leaf, at `place`. Its contents are old: the leaf's first panel overwrites them.
  float* leaf(const Shape& shape, std::uint64_t place) {
    while (depth_ >= 2 && joins_before(place)) merge(shape);
    if (depth_ == made_) nodes_[made_++].data = new_node(shape);
    Node& top = nodes_[depth_++];
    top.place = place;
    return top.data;
  }

  // The sum of all leaves, in exchange for another buffer; null if there was no leaf.
  float* take(const Shape& shape, float* in_exchange) {
    while (depth_ >= 2) merge(shape);
    if (depth_ == 0) return nullptr;
    depth_ = 0;
    float* total = nodes_[0].data;
    nodes_[0].data = in_exchange;
    return total;
  }

 private:
  bool joins_before(std::uint64_t place) const {
    const std::uint64_t a = nodes_[depth_ - 2].place, b = nodes_[depth_ - 1].place;
    return std::bit_width(a ^ b) < std::bit_width(b ^ place);
  }
  void merge(const Shape& shape) {
    add_into(shape, nodes_[depth_ - 2].data, nodes_[depth_ - 1].data);
    --depth_;
  }

  std::int64_t depth_ = 0, made_ = 0;
  Node nodes_[kDepth];
};

// The row that is being summed.
struct Own {
  const float* mean = nullptr;  // before the first block of coordinates was stepped
  const float* variance = nullptr;
  Buffer<float> square_plus;  // mean^2 + variance, of the whole row
  float bias = 0, bias_variance = 0;
  float offset = 0;                // of the row's logits; users at the other ends add their own
  const float* stepped = nullptr;  // the means as the blocks of coordinates before have stepped them
  float stepped_bias = 0;

  explicit Own(const Shape& shape) : square_plus(shape.row) {}
  void load(const Shape& shape, const Pass& pass, std::int64_t row) {
    const Side& side = pass.before;
    mean = side.rows + row * 2 * shape.row;
    variance = mean + shape.row;
    for (std::int64_t k = 0; k < shape.row; k += 8)
      store8(&square_plus[k], load8(mean + k) * load8(mean + k) + load8(variance + k));
    bias = side.bias_mean ? side.bias_mean[row] : 0.0f;
    bias_variance = side.bias_variance ? side.bias_variance[row] : 0.0f;
    offset = pass.own_is_user ? pass.constants.offset + pass.constants.extra(row) : pass.constants.offset;
    stepped = pass.own.rows + row * 2 * shape.row;
    stepped_bias = pass.own.bias_mean ? pass.own.bias_mean[row] : 0.0f;
  }
};

// Numbers that the first block of coordinates writes and the blocks after it read in the same order: p and pull of
// every edge, and the users' alpha and l.
class Tape {
 public:
  Tape() = default;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;
  ~Tape() { std::free(data_); }

  void rewind() { at_ = 0; }
  // The next `bytes` bytes, to write or to read.
  void* next(std::size_t bytes) {
    const std::size_t from = at_;
    at_ += bytes;
    if (at_ > room_) {
      void* grown = std::realloc(data_, 2 * at_);
      if (!grown) throw std::bad_alloc();
      data_ = static_cast<char*>(grown);
      room_ = 2 * at_;
    }
    return data_ + from;
  }
  void write(const void* from, std::size_t bytes) { std::memcpy(next(bytes), from, bytes); }
  void read(void* to, std::size_t bytes) { std::memcpy(to, next(bytes), bytes); }

 private:
  char* data_ = nullptr;
  std::size_t at_ = 0, room_ = 0;
};

// Four (or eight) rows of the triangle by V vectors of columns, over all edges of a panel.
template <int R, int V, bool First>
static inline void tile(std::int64_t KP, int edges, const float* weighted, const float* means, float* out) {
  v8 sums[R][V];  // the loops over it are unrolled early, so that it stays in registers
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < V; ++j) sums[i][j] = splat(0.0f);
#pragma GCC unroll 2
  for (int e = 0; e < edges; ++e) {
    v8 columns[V];
#pragma GCC unroll 8
    for (int j = 0; j < V; ++j) columns[j] = load8(means + e * KP + 8 * j);
#pragma GCC unroll 8
    for (int i = 0; i < R; ++i) {
      const v8 w = splat(weighted[e * KP + i]);
#pragma GCC unroll 8
      for (int j = 0; j < V; ++j) sums[i][j] += w * columns[j];
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < R; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < V; ++j) {
      float* at = out + i * KP + 8 * j;
      store8(at, First ? sums[i][j] : load8(at) + sums[i][j]);
    }
}

// A panel of edges: gathered means, the same weighted, and the coefficients of each edge.
struct Panel {
  explicit Panel(const Shape& shape)
      : shape(shape), storage(2 * kPanel * shape.KP), means(storage.data()), weighted(means + kPanel * shape.KP) {}

  // Compute E[u'v] and var[u'v] of the panel's edges (eq. 16), eight at a time. Keep the means of the first block of
  // coordinates, and the part of E[u'v] that comes from coordinates outside it.
  //   mean = eta_u' eta_v;  variance = sum_k (eta_u^2 + s_u) s_v + eta_v^2 s_u
  template <int V>
  void moments(const Own& own, int edges) {
    const std::int64_t row = V ? 8 * V : shape.row, KP = V ? 8 * V : shape.KP;
    v8 m[V ? V : 1], s[V ? V : 1], q[V ? V : 1];
    for (int j = 0; j < V; ++j) {
      m[j] = load8(own.mean + 8 * j);
      s[j] = load8(own.variance + 8 * j);
      q[j] = load8(own.square_plus.data() + 8 * j);
    }
    for (int e0 = 0; e0 < edges; e0 += 8) {
      v8 dots[8], spreads[8], rests[V ? 1 : 8];
      if constexpr (V > 0) {
        for (int e = 0; e < 8; ++e) {
          const float* other = rows[e0 + e];
          if (far && e0 + e < edges)
            for (int j = 0; j < V; ++j) __builtin_prefetch(soon[e0 + e] + 16 * j, 0, 2);
          float* copy = means + (e0 + e) * KP;
          v8 dot = splat(0.0f), spread = splat(0.0f);
          for (int j = 0; j < V; ++j) {
            const v8 v = load8(other + 8 * j);
            store8(copy + 8 * j, v);
            dot += m[j] * v;
            spread += q[j] * load8(other + row + 8 * j);
            spread += (v * v) * s[j];
          }
          dots[e] = dot;
          spreads[e] = spread;
        }
        store8(rest_of_mean + e0, splat(0.0f));
        store8(mean + e0, sum_rows(dots));
      } else {
        const v8 zero = splat(0.0f);
        for (int e = 0; e < 8; e += 4) {  // four edges share each read of the own row
          const float* const* others = rows + e0 + e;
          v8 dot[4] = {zero, zero, zero, zero}, spread[4] = {zero, zero, zero, zero},
             rest[4] = {zero, zero, zero, zero};
          for (std::int64_t k = 0; k < row; k += 8) {
            const v8 mk = load8(own.mean + k), qk = load8(own.square_plus.data() + k), sk = load8(own.variance + k);
            const bool inside = k < shape.width;
            if (far && e0 + e + 3 < edges)
              for (int f = 0; f < 4; ++f) __builtin_prefetch(soon[e0 + e + f] + 2 * k, 0, 2);
            for (int f = 0; f < 4; ++f) {
              const v8 v = load8(others[f] + k);
              spread[f] += qk * load8(others[f] + row + k);
              spread[f] += (v * v) * sk;
              if (inside) {
                store8(means + (e0 + e + f) * KP + k, v);
                dot[f] += mk * v;
              } else {
                rest[f] += mk * v;
              }
            }
          }
          for (int f = 0; f < 4; ++f) {
            dots[e + f] = dot[f];
            spreads[e + f] = spread[f];
            rests[e + f] = rest[f];
          }
        }
        const v8 outside = sum_rows(rests);
        store8(rest_of_mean + e0, outside);
        store8(mean + e0, sum_rows(dots) + outside);
      }
      store8(variance + e0, sum_rows(spreads));
    }
  }

  // Bring the pulls forward to the block of coordinates that begins at `first`: the block before counts as it was
  // stepped, and this block leaves the coordinates outside. Keep the means of the block that is summed.
  //   pull -= p (change of the bias + sum over the block before of eta_new v - sum over the block of eta v)
  void turn_to(std::int64_t first, const Own& own, int edges, bool slope) {
    const std::int64_t KP = shape.KP, row = shape.row, low = first - shape.width,
                       high = least(first + shape.width, row);
    const bool keep = first == shape.first, near = !far || !keep;
    const v8 zero = splat(0.0f), change = splat(low == 0 ? own.stepped_bias - own.bias : 0.0f);
    for (int e0 = 0; e0 < edges; e0 += 8) {
      v8 dots[8];
      for (int e = 0; e < 8; e += 4) {
        const float* const* others = rows + e0 + e;
        const float *a = others[0], *b = others[1], *c = others[2], *d = others[3];
        float* copy = means + (e0 + e) * KP - first;
        v8 da = zero, db = zero, dc = zero, dd = zero;
        for (std::int64_t k = low; k < first; k += 8) {
          const v8 m = load8(own.stepped + k);
          da += m * load8(a + k);
          db += m * load8(b + k);
          dc += m * load8(c + k);
          dd += m * load8(d + k);
        }
        for (std::int64_t k = first; k < high; k += 8) {
          const v8 m = load8(own.mean + k), va = load8(a + k), vb = load8(b + k), vc = load8(c + k), vd = load8(d + k);
          da -= m * va;
          db -= m * vb;
          dc -= m * vc;
          dd -= m * vd;
          if (!keep) continue;
          store8(copy + k, va);
          store8(copy + KP + k, vb);
          store8(copy + 2 * KP + k, vc);
          store8(copy + 3 * KP + k, vd);
        }
        dots[e] = da, dots[e + 1] = db, dots[e + 2] = dc, dots[e + 3] = dd;
        if (near || e0 + e + 3 >= edges) continue;
        for (int f = 0; f < 4; ++f) {
          const float* later = soon[e0 + e + f];
          for (std::int64_t k = low; k < high; k += 16) __builtin_prefetch(later + k, 0, 2);
          for (std::int64_t k = first; k < high; k += 16) __builtin_prefetch(later + row + k, 0, 2);
        }
      }
      if (!slope) store8(pull + e0, load8(pull + e0) - load8(precision + e0) * (sum_rows(dots) + change));
    }
  }

  // Compute the weighted means p v, z += y v and the sums of p s, in W vectors of columns from k on.
  template <int W, bool First>
  void weigh(float* node, std::int64_t k, int edges) {
    const std::int64_t KP = shape.KP, variances = shape.row + shape.first + k;
    const float* from = means + k;
    float *to = weighted + k, *z = node + shape.second() + k;
    v8 zs[W], spread[W];
    for (int j = 0; j < W; ++j) {
      zs[j] = First ? splat(0.0f) : load8(z + 8 * j);
      spread[j] = splat(0.0f);
    }
    for (int e = 0; e < edges; ++e, from += KP, to += KP) {
      const v8 p = splat(precision[e]), y = splat(pull[e]);
      const float* variance_of = rows[e] + variances;
      for (int j = 0; j < W; ++j) {
        const v8 v = load8(from + 8 * j);
        store8(to + 8 * j, p * v);
        zs[j] += y * v;
        spread[j] += p * load8(variance_of + 8 * j);
      }
    }
    for (int j = 0; j < W; ++j) {
      store8(z + 8 * j, zs[j]);
      store8(spreads + k + 8 * j, spread[j]);
    }
  }

  // Add the panel's edges to a node: P += p (v v' + diag(s)), z += y v, for coefficients p and y per edge.
  template <int V, bool First>
  void add_to(float* node, int edges) {
    const std::int64_t KP = V ? 8 * V : shape.KP;
    if constexpr (V > 0 && V <= 4) {
      weigh<V, First>(node, 0, edges);
    } else {
      std::int64_t k = 0;
      for (; k + 32 <= KP; k += 32) weigh<4, First>(node, k, edges);
      for (; k + 16 <= KP; k += 16) weigh<2, First>(node, k, edges);
      for (; k < KP; k += 8) weigh<1, First>(node, k, edges);
    }
    const std::int64_t rows4 = shape.K4;
    std::int64_t i = 0;
    for (; i + 8 <= rows4 && i < 8; i += 8) tile<8, 1, First>(KP, edges, weighted + i, means, node + i * KP);
    for (; i < rows4; i += 4) {
      std::int64_t vectors = (i + 4 + 7) / 8, j = 0;
      while (vectors - j >= 3 && vectors - j != 4) {  // threes, unless a single one would be left: it waits for itself
        tile<4, 3, First>(KP, edges, weighted + i, means + 8 * j, node + i * KP + 8 * j);
        j += 3;
      }
      for (; vectors - j >= 2; j += 2) tile<4, 2, First>(KP, edges, weighted + i, means + 8 * j, node + i * KP + 8 * j);
      if (vectors > j) tile<4, 1, First>(KP, edges, weighted + i, means + 8 * j, node + i * KP + 8 * j);
    }
    for (std::int64_t k = 0; k < shape.K; ++k) node[k * KP + k] += spreads[k];
  }

  Shape shape;
  Buffer<float> storage;
  float* means;
  float* weighted;
  Buffer<float> spread_storage{shape.KP};
  float* spreads = spread_storage.data();
  const float* rows[kPanel];
  const float* soon[kPanel];  // rows that a later panel reads
  bool far = false;           // fetch these rows ahead
  alignas(32) float mean[kPanel];
  alignas(32) float rest_of_mean[kPanel];
  alignas(32) float variance[kPanel];
  alignas(32) float precision[kPanel];
  alignas(32) float pull[kPanel];
  // Of the other end of each edge:
  alignas(32) float bias[kPanel] = {};
  alignas(32) float bias_variance[kPanel] = {};
  // Of each edge: E[h] of its pair in its group's sums, the same times l, and its weight.
  alignas(32) float w[kPanel];
  alignas(32) float wl[kPanel];
  alignas(32) float kappa[kPanel] = {};
};

}  // namespace considerate::CONSIDERATE_ISA
