"""A made-up catalogue for demonstrations: distinct, readable titles that hint at their genre."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from considerate.errors import UsageError


class Genre(NamedTuple):
    name: str
    adjectives: tuple[str, ...]
    nouns: tuple[str, ...]
    places: tuple[str, ...]


def _genre(name: str, adjectives: str, nouns: str, places: str) -> Genre:
    return Genre(name, tuple(adjectives.split()), tuple(nouns.split()), tuple(places.split()))


GENRES = (
    _genre(
        "space",
        "Stellar Orbital Lunar Distant Silent Weightless Frozen Crimson Binary Solar",
        "Starship Comet Orbit Colony Signal Satellite Nebula Android Eclipse Beacon",
        "Andromeda Callisto Europa Titan Vega Orion Proxima Ganymede Polaris Rhea",
    ),
    _genre(
        "crime",
        "Cold Crooked Unsolved Guilty Hidden Stolen Midnight Missing Poisoned Second",
        "Alibi Detective Verdict Witness Ransom Suspect Heist Cipher Informer Motive",
        "Baltimore Soho Marseille Glasgow Naples Chicago Trieste Antwerp Odessa Lisbon",
    ),
    _genre(
        "romance",
        "Tender Secret Summer Gentle Borrowed Unexpected Sweet Faithful Last Golden",
        "Kiss Letter Waltz Promise Wedding Valentine Bouquet Serenade Sweetheart Embrace",
        "Paris Verona Tuscany Vienna Provence Seville Capri Bath Granada Venice",
    ),
    _genre(
        "sea",
        "Quiet Stormy Salted Drifting Deep Forgotten Northern Blue Windward Tidal",
        "Harbour Lighthouse Schooner Whale Anchor Island Tempest Captain Reef Voyage",
        "Nantucket Orkney Valparaiso Tasmania Cornwall Zanzibar Lofoten Tortuga Reykjavik Madeira",
    ),
    _genre(
        "western",
        "Dusty Lonesome Broken Restless Wild Outlaw Iron Burning Barbed Nameless",
        "Saddle Sheriff Canyon Stagecoach Revolver Mustang Homestead Posse Prairie Spur",
        "Laredo Abilene Tucson Cheyenne Deadwood Durango Amarillo Tombstone Sonora Laramie",
    ),
    _genre(
        "haunted",
        "Pale Whispering Cursed Hollow Restive Shrouded Sleepless Ashen Buried Moonless",
        "Phantom Crypt Seance Raven Mirror Coffin Shadow Scream Mausoleum Spectre",
        "Whitby Salem Carpathia Ravenhill Blackmoor Thornfield Darkwater Graveley Ashdown Winterbourne",
    ),
    _genre(
        "comedy",
        "Clumsy Accidental Hopeless Cheerful Awkward Unlikely Borrowed Reluctant Absurd Jolly",
        "Butler Parrot Casserole Trombone Neighbour Landlord Mishap Pyjamas Poodle Nephew",
        "Brighton Scranton Blackpool Toledo Margate Peoria Skegness Boise Wigan Yonkers",
    ),
    _genre(
        "sport",
        "Final Unbeaten Golden Underdog Overtime Barefoot Relentless Winning Muddy Veteran",
        "Goalkeeper Marathon Boxer Striker Champion Referee Sprint Pitcher Knockout Relay",
        "Wembley Boston Nairobi Dakar Turin Rio Lahore Kingston Bilbao Sapporo",
    ),
)

_PATTERNS = ("The {a} {n}", "{a} {n}", "The {n} of {p}", "{n} in {p}", "The {a} {n} of {p}", "A {n} for {p}")


def readable_titles(count: int, seed: int, *, genres: ArrayLike | None = None) -> list[str]:
    """`count` distinct titles such as 'The Quiet Harbour'; `genres[n]`, an index of GENRES, sets n's words.

    Without `genres` each title's genre is drawn. When a genre has used up a fresh name it makes a sequel:
    'The Quiet Harbour 2'.
    """
    if count < 0:
        raise UsageError(f"count is {count}; titles cannot be fewer than 0.")
    rng = np.random.default_rng([seed, 7])
    of = rng.integers(len(GENRES), size=count) if genres is None else np.asarray(genres)
    if of.shape != (count,) or (count and not (of.min() >= 0 and of.max() < len(GENRES))):
        raise UsageError(f"genres must be {count} numbers in 0..{len(GENRES) - 1}; its shape is {of.shape}.")
    seen: dict[str, int] = {}
    titles = []
    for g in of:
        title = _title(GENRES[int(g)], rng)
        for _ in range(5):
            if title not in seen:
                break
            title = _title(GENRES[int(g)], rng)
        seen[title] = seen.get(title, 0) + 1
        titles.append(title if seen[title] == 1 else f"{title} {seen[title]}")
    return titles


def _title(genre: Genre, rng: np.random.Generator) -> str:
    pattern = _PATTERNS[rng.integers(len(_PATTERNS))]
    words = [options[rng.integers(len(options))] for options in genre[1:]]
    title = pattern.format(a=words[0], n=words[1], p=words[2])
    return f"An {title[2:]}" if title[:2] == "A " and title[2] in "AEIOU" else title
