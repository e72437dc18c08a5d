#include "arrays.hpp"
#include "dispatch.hpp"
#include "drawer.hpp"
#include "saturation.hpp"

#include <nanobind/stl/tuple.h>

#include <vector>

namespace considerate {

// Rules and their arrays.
struct HeldRules : Held<Rules> {
  std::int64_t users = 0, items = 0;
};

// Known pairs and their arrays.
struct HeldKnown : Held<Known> {
  std::int64_t users = 0, items = 0;
};

// The items of each user, checked.
static ItemLists checked_lists(const Held<Edges>* lists, std::int64_t users, std::int64_t items) {
  if (!lists) return {};
  require(lists->rows == users && lists->starts[0] == 0, "starts: not one list for each user");
  for (std::int64_t m = 0; m < users; ++m) require(lists->starts[m] <= lists->starts[m + 1], "starts descend");
  for (std::int64_t e = 0; e < lists->count(); ++e)
    require(lists->indices[e] >= 0 && lists->indices[e] < items, "an item is out of range");
  return {lists->starts, lists->indices};
}

static void check_known(const HeldKnown* known, std::int64_t users, std::int64_t items) {
  require(!known || (known->users == users && known->items == items), "known pairs of other users or items");
}

static DrawSettings settings_from(std::uint64_t seed, std::uint64_t sweep, double rate, const In<double>& weights,
                                  const In<std::uint64_t>& thresholds, const In<std::int32_t>& aliases,
                                  const Held<WalkTable>* walk, const HeldKnown* known, std::size_t users) {
  const auto size = static_cast<std::int64_t>(weights.size());
  require(thresholds.size() == weights.size() && aliases.size() == weights.size(),
          "the alias table is of another size");
  std::int64_t support = 0;
  for (std::int64_t n = 0; n < size; ++n) support += weights.data()[n] > 0;
  require(walk == nullptr || walk->items == size, "the walk's table is of another size");
  require(walk == nullptr || walk->slots != nullptr, "the walk's table has no slots to draw from");
  DrawSettings settings{};
  settings.seed = seed;
  settings.sweep = sweep;
  settings.rate = rate;
  settings.weights = weights.data();
  settings.table = {thresholds.data(), aliases.data(), size};
  settings.support = support;
  settings.walk = walk;
  check_known(known, static_cast<std::int64_t>(users), size);
  if (known) settings.known = *known;
  return settings;
}

void bind_draws(nb::module_& m) {
  nb::class_<Held<Tilt>>(m, "Tilt", "A posterior that draws lean on.")
      .def(
          "__init__",
          [](Held<Tilt>* self, double strength, const Held<Side>& users, const Held<Side>& items,
             const Held<Constants>& constants) {
            require(users.factors == items.factors, "users and items have different numbers of factors");
            require(!constants.user_offset || constants.users == users.count, "user_offset: another length than users");
            Held<Tilt>& tilt = *new (self) Held<Tilt>();
            tilt.strength = strength;
            tilt.users = tilt.hold(users);
            tilt.items = tilt.hold(items);
            tilt.constants = tilt.hold(constants);
            tilt.moments = kernels_in_use()->pair_moments;
          },
          nb::arg("strength"), nb::arg("users"), nb::arg("items"), nb::arg("constants"),
          "Draws lean away from liked items if strength > 0, and towards them if it is negative.");
  nb::class_<HeldRules>(m, "Rules", "Rules that make pairs impossible, by classes and by times.")
      .def(
          "__init__",
          [](HeldRules* self, In<std::int64_t> most, std::int64_t items, Maybe<std::int32_t> user_class,
             Maybe<std::int32_t> item_class, Maybe<std::uint64_t> allowed, Maybe<double> user_times,
             Maybe<double> item_times) {
            HeldRules& rules = *new (self) HeldRules();
            const std::int64_t users = rules.users = static_cast<std::int64_t>(most.size());
            rules.items = items;
            rules.most = rules.hold(most, users, "most");
            if (allowed) {
              require(user_class && item_class && allowed->ndim() == 2,
                      "allowed: needs classes, and is [classes, words]");
              const auto classes = static_cast<std::int64_t>(allowed->shape(0));
              rules.words = static_cast<std::int64_t>(allowed->shape(1));
              rules.allowed = rules.hold(*allowed, classes * rules.words, "allowed");
              rules.user_class = rules.hold(user_class, users, "user_class: another length than most");
              rules.item_class = rules.hold(item_class, items, "item_class: another length than the items");
              for (std::int64_t m = 0; m < users; ++m)
                require(rules.user_class[m] >= 0 && rules.user_class[m] < classes, "a class is out of range");
              for (std::int64_t n = 0; n < items; ++n)
                require(rules.item_class[n] >= 0 && rules.item_class[n] < 64 * rules.words, "a class is out of range");
            }
            require(user_times.has_value() == item_times.has_value(), "times of one side alone");
            rules.user_times = rules.hold(user_times, 2 * users, "user_times: not [users, 2]");
            rules.item_times = rules.hold(item_times, 2 * items, "item_times: not [items, 2]");
          },
          nb::arg("most"), nb::arg("items"), nb::kw_only(), nb::arg("user_class") = nb::none(),
          nb::arg("item_class") = nb::none(), nb::arg("allowed") = nb::none(), nb::arg("user_times") = nb::none(),
          nb::arg("item_times") = nb::none());
  nb::class_<HeldKnown>(m, "Known", "Pairs of some users that were considered and not liked, or that are impossible.")
      .def(
          "__init__",
          [](HeldKnown* self, std::int64_t users, std::int64_t items, const Held<Edges>* considered,
             const Held<Edges>* impossible, const HeldRules* rules) {
            HeldKnown& known = *new (self) HeldKnown();
            known.users = users;
            known.items = items;
            known.considered = checked_lists(considered, users, items);
            known.impossible = checked_lists(impossible, users, items);
            for (const Held<Edges>* lists : {considered, impossible})
              if (lists) known.hold(*lists);
            if (!rules) return;
            require(rules->users == users && rules->items == items, "rules of other users or items");
            known.rules = rules;
            known.hold(nb::find(*rules));
          },
          nb::arg("users"), nb::arg("items"), nb::arg("considered").none() = nb::none(),
          nb::arg("impossible").none() = nb::none(), nb::arg("rules").none() = nb::none());
  m.def(
      "alias_table",
      [](In<double> weights) {
        auto thresholds = new_array<std::uint64_t>({weights.size()});
        auto aliases = new_array<std::int32_t>({weights.size()});
        {
          nb::gil_scoped_release release;
          build_alias(weights.data(), static_cast<std::int64_t>(weights.size()), thresholds.data(), aliases.data());
        }
        return std::make_tuple(thresholds, aliases);
      },
      nb::arg("weights"), "Walker's alias table of non-negative weights: (thresholds, aliases).");
  m.def(
      "count_negatives",
      [](std::uint64_t seed, std::uint64_t sweep, double rate, In<double> weights, In<std::uint64_t> thresholds,
         In<std::int32_t> aliases, In<std::int64_t> starts, In<std::int32_t> liked, std::int64_t first,
         std::int64_t last, InOut<std::int64_t> counts, std::int64_t first_user, const HeldKnown* known) {
        DrawSettings settings =
            settings_from(seed, sweep, rate, weights, thresholds, aliases, nullptr, known, starts.size() - 1);
        settings.first_user = first_user;
        require_range(first, last, static_cast<std::int64_t>(starts.size()) - 1);
        require(static_cast<std::int64_t>(counts.size()) >= last, "counts is too short");
        nb::gil_scoped_release release;
        for (std::int64_t user = first; user < last; ++user) {
          const std::int64_t begin = starts.data()[user];
          counts.data()[user] = negatives_of(settings, liked.data() + begin, starts.data()[user + 1] - begin, user);
        }
      },
      nb::arg("seed"), nb::arg("sweep"), nb::arg("rate"), nb::arg("weights"), nb::arg("thresholds"), nb::arg("aliases"),
      nb::arg("starts"), nb::arg("liked"), nb::arg("first"), nb::arg("last"), nb::arg("counts").noconvert(),
      nb::arg("first_user") = 0, nb::arg("known").none() = nb::none(),
      "Number of unliked edges of each of the users first..last; row 0 is user `first_user`.");
  m.def(
      "expected_negatives",
      [](double rate, In<double> weights, In<std::int64_t> starts, In<std::int32_t> liked, const HeldKnown* known) {
        const std::size_t users = starts.size() - 1;
        DrawSettings settings{};
        settings.rate = rate;
        settings.weights = weights.data();
        settings.table.size = static_cast<std::int64_t>(weights.size());
        for (std::size_t n = 0; n < weights.size(); ++n) settings.support += weights.data()[n] > 0;
        check_known(known, static_cast<std::int64_t>(users), settings.table.size);
        if (known) settings.known = *known;
        require(starts.data()[users] <= static_cast<std::int64_t>(liked.size()), "starts");
        auto expected = new_array<double>({users});
        nb::gil_scoped_release release;
        for (std::size_t user = 0; user < users; ++user) {
          const std::int64_t begin = starts.data()[user], degree = starts.data()[user + 1] - begin;
          const auto row = static_cast<std::int64_t>(user);
          expected.data()[user] = UnlikedEdges(settings, liked.data() + begin, degree, row).expected();
        }
        return expected;
      },
      nb::arg("rate"), nb::arg("weights"), nb::arg("starts"), nb::arg("liked"), nb::arg("known").none() = nb::none(),
      "Expected number of unliked edges of each user: known ones, and drawn ones up to `rate` times the likes or the "
      "number of items left.");
  m.def(
      "draw_negatives",
      [](std::uint64_t seed, std::uint64_t sweep, double rate, In<double> weights, In<std::uint64_t> thresholds,
         In<std::int32_t> aliases, In<std::int64_t> starts, In<std::int32_t> liked, std::int64_t first,
         std::int64_t last, In<std::int64_t> out_starts, InOut<std::int32_t> out, std::int64_t first_user,
         const Held<WalkTable>* walk, const Held<Tilt>* tilt, const HeldKnown* known) {
        DrawSettings settings =
            settings_from(seed, sweep, rate, weights, thresholds, aliases, walk, known, starts.size() - 1);
        settings.first_user = first_user;
        if (tilt != nullptr) {
          require(tilt->users.count + 1 == static_cast<std::int64_t>(starts.size()), "the tilt is of other users");
          require(tilt->items.count == static_cast<std::int64_t>(weights.size()), "the tilt is of other items");
          settings.tilt = tilt;
        }
        require_range(first, last, static_cast<std::int64_t>(starts.size()) - 1);
        require(out_starts.size() == starts.size(), "out_starts is of another length");
        require(static_cast<std::int64_t>(out.size()) >= out_starts.data()[last], "out is too short");
        nb::gil_scoped_release release;
        Drawer drawer(settings);
        for (std::int64_t user = first; user < last; ++user) {
          const std::int64_t begin = starts.data()[user], end = starts.data()[user + 1], at = out_starts.data()[user];
          if (user + 1 < last) drawer.expect(liked.data() + end, starts.data()[user + 2] - end);
          drawer.draw(user, liked.data() + begin, end - begin, out_starts.data()[user + 1] - at, out.data() + at);
        }
        return std::make_tuple(drawer.rejected(), drawer.from_tree(), drawer.from_pi());
      },
      nb::arg("seed"), nb::arg("sweep"), nb::arg("rate"), nb::arg("weights"), nb::arg("thresholds"), nb::arg("aliases"),
      nb::arg("starts"), nb::arg("liked"), nb::arg("first"), nb::arg("last"), nb::arg("out_starts"),
      nb::arg("out").noconvert(), nb::arg("first_user") = 0, nb::arg("walk").none() = nb::none(),
      nb::arg("tilt").none() = nb::none(), nb::arg("known").none() = nb::none(),
      "Draw unliked edges without replacement, from pi or by a walk, tilted or not. Known edges come first, and no "
      "impossible pair is drawn. Returns (rejections, draws that needed a tree, draws of a walk that fell back to "
      "pi).");
  m.def(
      "solve_temperatures",
      [](In<double> table, double grid_start, double grid_step, In<double> weights, In<std::int64_t> starts,
         In<std::int32_t> liked, std::int64_t first, std::int64_t last, double negatives, InOut<double> out,
         Maybe<double> wanted) {
        require_range(first, last, static_cast<std::int64_t>(starts.size()) - 1);
        require(static_cast<std::int64_t>(out.size()) >= last, "out is too short");
        require(table.size() >= 4 && table.size() % 2 == 0, "table");
        require(!wanted || wanted->size() + 1 == starts.size(), "wanted");
        require(starts.data()[first] >= 0 && starts.data()[last] <= static_cast<std::int64_t>(liked.size()), "starts");
        for (std::int64_t e = starts.data()[first]; e < starts.data()[last]; ++e)
          require(liked.data()[e] >= 0 && liked.data()[e] < static_cast<std::int64_t>(weights.size()),
                  "an item is out of range");
        const SaturationTable of{table.data(), static_cast<std::int64_t>(table.size() / 2), grid_start, grid_step};
        nb::gil_scoped_release release;
        double total = 0;
        std::int64_t support = 0;
        for (std::size_t n = 0; n < weights.size(); ++n) {
          total += weights.data()[n];
          support += weights.data()[n] > 0;
        }
        for (std::int64_t user = first; user < last; ++user) {
          const std::int64_t begin = starts.data()[user];
          const std::int64_t degree = starts.data()[user + 1] - begin;
          const double target = wanted ? wanted->data()[user] : negatives * static_cast<double>(degree);
          out.data()[user] =
              solve_temperature(of, weights.data(), total, support, liked.data() + begin, degree, target);
        }
      },
      nb::arg("table"), nb::arg("grid_start"), nb::arg("grid_step"), nb::arg("weights"), nb::arg("starts"),
      nb::arg("liked"), nb::arg("first"), nb::arg("last"), nb::arg("negatives"), nb::arg("out").noconvert(),
      nb::arg("wanted") = nb::none(),
      "T of users first..last, such that 1 - exp(-T weight) over the items not liked adds up to negatives x degree, or "
      "to `wanted`; `liked` is then everything that they do not draw.");
}

}  // namespace considerate
