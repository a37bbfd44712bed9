"""Every claim of the theory by id. A new theory module adds itself to MODULES and keeps its claims in CLAIMS."""

import difflib

from . import alignment, rates, spectra
from .claims import Claim, Quantity

MODULES = (alignment, spectra, rates)
CLAIMS: dict[str, Claim] = {claim.id: claim for module in MODULES for claim in module.CLAIMS}


class UnknownClaim(ValueError):
    """A claim that is not registered was asked for."""


def find(claim_id: str) -> Claim:
    """Return the claim with this id.

    Args:
        claim_id: For example ``alignment.certificate``.

    Raises:
        UnknownClaim: If there is none; the message names the nearest ids.
    """
    if claim_id in CLAIMS:
        return CLAIMS[claim_id]
    near = difflib.get_close_matches(claim_id, CLAIMS, n=3, cutoff=0.4)
    # Half of an id is often right (certificate, width.certificate): match the last part on its own as well.
    near += [known for known in CLAIMS if known.split(".")[-1] == claim_id.split(".")[-1] and known not in near]
    hint = f"did you mean {', '.join(near)}?" if near else "`rescert claims` lists them."
    raise UnknownClaim(f"find: no claim {claim_id!r}; {hint}")


def claims(prefix: str = "") -> tuple[Claim, ...]:
    """Return the claims whose id starts with ``prefix``, in the order of the theory."""
    return tuple(claim for claim_id, claim in CLAIMS.items() if claim_id.startswith(prefix))


def quantities() -> dict[str, Quantity]:
    """Return every quantity that some claim speaks about, by id."""
    return {claim.quantity.id: claim.quantity for claim in CLAIMS.values()}
