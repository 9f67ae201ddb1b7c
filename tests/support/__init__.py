"""What several test files share: small runs, odd models, slow and exact answers to compare with."""
