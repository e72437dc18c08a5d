// Natural-gradient sums over edges (eq. 15, 16 and 19): a panel of edges at a time, in register tiles.
// Included by kernels.cpp inside the namespace of its instruction set.
#pragma once

constexpr int kPanel = 32;          // edges gathered at a time
constexpr std::int64_t kChunk = 2048;  // edges in a leaf of the tree

struct Shape {
  std::int64_t K, KP, K4;  // factors; padded to 8; rows of the triangle, padded to 4
  explicit Shape(std::int64_t factors) : K(factors), KP(padded(factors)), K4((factors + 3) / 4 * 4) {}
  std::int64_t second() const { return K4 * KP; }
  std::int64_t size() const { return second() + KP + 8; }
};

// The sums of one node of the tree, in one buffer: the lower triangle by rows of KP, then z, then the bias's two.
struct Node {
  std::uint64_t place = 0;  // which leaf, or any leaf of the subtree
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

// A stack that adds leaves, which come in ascending order of their places, along the binary trie of those places.
class Tree {
 public:
  static constexpr std::int64_t kDepth = 66;  // one node for each bit of a place, and two
  explicit Tree(const Shape& shape) : shape_(shape) {}
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  ~Tree() {
    for (std::int64_t i = 0; i < made_; ++i) std::free(nodes_[i].data);
  }

  // The buffer for the next leaf, zeroed, pushed at `place`.
  float* leaf(std::uint64_t place) {
    while (depth_ >= 2 && joins_before(place)) merge();
    const std::size_t bytes = (static_cast<std::size_t>(shape_.size()) * sizeof(float) + 63) / 64 * 64;
    if (depth_ == made_) {
      nodes_[made_].data = static_cast<float*>(std::aligned_alloc(64, bytes));
      if (!nodes_[made_].data) throw std::bad_alloc();
      ++made_;
    }
    Node& top = nodes_[depth_++];
    top.place = place;
    std::memset(top.data, 0, bytes);
    return top.data;
  }

  // The sum of all; null where there was no leaf. The stack is empty afterwards.
  const float* total() {
    while (depth_ >= 2) merge();
    const bool any = depth_ == 1;
    depth_ = 0;
    return any ? nodes_[0].data : nullptr;
  }

 private:
  bool joins_before(std::uint64_t place) const {
    const std::uint64_t a = nodes_[depth_ - 2].place, b = nodes_[depth_ - 1].place;
    return std::bit_width(a ^ b) < std::bit_width(b ^ place);
  }
  void merge() {
    add_into(shape_, nodes_[depth_ - 2].data, nodes_[depth_ - 1].data);
    --depth_;
  }

  Shape shape_;
  std::int64_t depth_ = 0, made_ = 0;
  Node nodes_[kDepth];
};

// What is read again and again of the row that is being summed.
struct Own {
  const float* mean;
  const float* variance;
  Buffer<float> square_plus;  // mean^2 + variance
  float bias = 0, bias_variance = 0;

  explicit Own(const Shape& shape) : square_plus(shape.KP) {}
  void load(const Shape& shape, const Side& side, std::int64_t row) {
    mean = side.rows + row * 2 * shape.KP;
    variance = mean + shape.KP;
    for (std::int64_t k = 0; k < shape.KP; ++k)
      square_plus[k] = mean[k] * mean[k] + variance[k];
    bias = side.bias_mean ? side.bias_mean[row] : 0.0f;
    bias_variance = side.bias_variance ? side.bias_variance[row] : 0.0f;
  }
};

// E[a] without the offset and biases, and the variance of u'v, for eight edges (eq. 16).
//   mean = eta_u' eta_v;  variance = sum_k (eta_u^2 + s_u) s_v + eta_v^2 s_u
static inline void moments8(const Shape& shape, const Own& own, const float* const* rows, v8& mean, v8& variance) {
  v8 dots[8], spreads[8];
  for (int e = 0; e < 8; ++e) {
    const float* other = rows[e];
    v8 dot = splat(0.0f), spread = splat(0.0f);
    for (std::int64_t k = 0; k < shape.KP; k += 8) {
      const v8 v = load8(other + k), s = load8(other + shape.KP + k);
      dot += load8(own.mean + k) * v;
      spread += load8(own.square_plus.data() + k) * s;
      spread += (v * v) * load8(own.variance + k);
    }
    dots[e] = dot;
    spreads[e] = spread;
  }
  mean = sum_rows(dots);
  variance = sum_rows(spreads);
}

template <int V>
static inline void tile(std::int64_t KP, int edges, const float* weighted, const float* means, float* out) {
  v8 sums[4][V];
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < V; ++j) sums[i][j] = splat(0.0f);
  for (int e = 0; e < edges; ++e) {
    v8 columns[V];
    for (int j = 0; j < V; ++j) columns[j] = load8(means + e * KP + 8 * j);
    for (int i = 0; i < 4; ++i) {
      const v8 w = splat(weighted[e * KP + i]);
      for (int j = 0; j < V; ++j) sums[i][j] += w * columns[j];
    }
  }
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < V; ++j) store8(out + i * KP + 8 * j, load8(out + i * KP + 8 * j) + sums[i][j]);
}

// Scratch for a panel of edges: gathered means and variances, and their coefficients.
struct Panel {
  explicit Panel(const Shape& shape)
      : shape(shape), storage(2 * kPanel * shape.KP), means(storage.data()), weighted(means + kPanel * shape.KP) {}

  // Add the panel's edges to a node: P += p (v v' + diag(s)), z += y v, for coefficients p and y per edge.
  void add_to(float* node, int edges) {
    const std::int64_t KP = shape.KP;
    float* z = node + shape.second();
    for (std::int64_t k = 0; k < KP; k += 8) {
      v8 zs = load8(z + k), spread = splat(0.0f);
      for (int e = 0; e < edges; ++e) {
        const v8 v = load8(rows[e] + k), p = splat(precision[e]);
        store8(means + e * KP + k, v);
        store8(weighted + e * KP + k, p * v);
        zs += splat(pull[e]) * v;
        spread += p * load8(rows[e] + KP + k);
      }
      store8(z + k, zs);
      for (std::int64_t i = k; i < least(k + 8, shape.K); ++i) node[i * KP + i] += spread[i - k];
    }
    for (std::int64_t i = 0; i < shape.K4; i += 4) {
      const std::int64_t vectors = (i + 4 + 7) / 8;
      std::int64_t j = 0;
      for (; j + 3 <= vectors; j += 3) tile<3>(KP, edges, weighted + i, means + 8 * j, node + i * KP + 8 * j);
      if (vectors - j == 2) tile<2>(KP, edges, weighted + i, means + 8 * j, node + i * KP + 8 * j);
      if (vectors - j == 1) tile<1>(KP, edges, weighted + i, means + 8 * j, node + i * KP + 8 * j);
    }
  }

  Shape shape;
  Buffer<float> storage;
  float* means;
  float* weighted;
  const float* rows[kPanel];
  alignas(32) float precision[kPanel];
  alignas(32) float pull[kPanel];
};
