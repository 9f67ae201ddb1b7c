"""A run as an entry of the public registry of deployments of differential privacy (arXiv 2509.13509).

The fields are those of opendp/deployments-registry-data. What only the publisher knows stays empty, and the entry is a
draft. JSON is YAML too, so the file can be handed in as it is.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tacit.errors import InvalidArgument
from tacit.reports.facts import Facts

_CENTRAL = "Central"
_TRUST = "Whoever trains the model holds the data and is trusted with them; readers of the model are not trusted."
_ACTORS = "The data curator trains. Everyone else sees what is released: the model and every noisy gradient."
_GRID = "Noise and sum are rounded together to a public grid, against leaks by floating point."


def describe_deployment(facts: Facts) -> dict[str, Any]:
    """The entry for the facts of a run. `InvalidArgument` if no finite epsilon is proven, which the registry needs."""
    guarantee, data = facts["guarantee"], facts["data"]
    epsilon, delta = guarantee["epsilon"]["upper"], guarantee["delta"]
    if epsilon is None or facts["kind"] != "run":
        raise InvalidArgument(
            "The registry lists a proven epsilon, and nothing finite is proven of this run. Train with a method in its "
            "rigorous form."
        )
    assumptions = [each["text"] for each in guarantee["assumptions"]]
    return {
        "url_slug": "",
        "deployment": {
            "basic": {
                "name": facts["title"],
                "data_curators": [],
                "description": f"A model of {data['name']}, trained by tacit {facts['made']['tacit']}.",
                "intended_use": "",
                "data_product_type": "Machine learning model",
                "data_product_region": "",
                "data_product_sector": "",
                "publication_date": datetime.now(UTC).date().isoformat(),
            },
            "dp_variant": {
                "variant_name": "Approximate DP" if delta > 0 else "Pure DP",
                "data_domain": f"Up to {data['population']:,} examples of {data['name']}, {data['population_is']}.",
                "unprotected_quantities": "\n".join(guarantee["unprotected"]),
            },
            "privacy_loss": {
                "privacy_unit": guarantee["unit"],
                "privacy_unit_details": guarantee["statement"],
                "number_of_privacy_units": 1,
                "privacy_parameters": {"epsilon": epsilon, "delta": delta},
                "privacy_parameters_details": "\n".join(guarantee["sentences"]),
            },
            "deployment_model": {
                "model_name": _CENTRAL,
                "model_name_details": "",
                "trust_assumptions": "\n".join([_TRUST, *assumptions]),
                "actors": _ACTORS,
                "release_type": "One release",
                "release_type_details": "One training run; its releases are composed.",
                "data_source_type": "Static",
                "data_source_type_details": "",
                "access_type": "Non-interactive",
                "access_type_details": "",
            },
            "implementation": _describe_implementation(facts),
            "administrative": {"evidence_sources": {}, "status": "Draft", "registry_authors": [], "tier": 3},
        },
    }


def _describe_implementation(facts: Facts) -> dict[str, Any]:
    guarantee, mechanism = facts["guarantee"], facts["mechanism"]
    stages = [] if mechanism is None else [*mechanism["stages"], mechanism["sampling"]]
    named = [f"{one['place']}: {one['name']} {one['settings']}" for one in stages]
    return {
        "preprocessing_and_hyperparameter_tuning": f"{facts['tuning']}",
        "mechanisms": "\n".join([*named, _GRID]),
        "composition": "" if guarantee["accountant"] is None else guarantee["accountant"]["name"],
        "post_processing": "Optimizer and model use released values only.",
        "justification": "",
        "utility": "",
        "additional_information": "\n".join([*guarantee["notes"], *guarantee["errors"]]),
    }
