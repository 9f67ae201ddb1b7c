"""The entry for the registry of deployments: its fields, and numbers that are those of the guarantee."""

import json

import pytest

from support.report_folders import run_command
from tacit.errors import InvalidArgument
from tacit.guarantee import Guarantee
from tacit.reports.registry import describe_deployment
from tacit.reports.run import read_run

# The template of opendp/deployments-registry-data, as read in November 2026.
FIELDS = {
    "basic": "name data_curators description intended_use data_product_type data_product_region data_product_sector "
    "publication_date",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details number_of_privacy_units privacy_parameters "
    "privacy_parameters_details",
    "deployment_model": "model_name model_name_details trust_assumptions actors release_type release_type_details "
    "data_source_type data_source_type_details access_type access_type_details",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing justification "
    "utility additional_information",
    "administrative": "evidence_sources status registry_authors tier",
}


@pytest.mark.slow
def test_the_entry_has_the_registrys_fields_and_the_guarantees_numbers(run_folder, tmp_path):
    run_command(f"report {run_folder} --format registry --out {tmp_path}")
    entry = json.loads((tmp_path / "registry.yaml").read_text())
    assert {name: " ".join(part) for name, part in entry["deployment"].items()} == FIELDS
    guarantee = Guarantee.from_json((run_folder / "guarantee.json").read_text())
    proven = {"epsilon": guarantee.epsilon(guarantee.delta), "delta": guarantee.delta}
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"] == proven
    facts = read_run(run_folder)
    facts["guarantee"]["epsilon"]["upper"] = None
    with pytest.raises(InvalidArgument, match="proven"):
        describe_deployment(facts)
