"""The mutants, one module for each part of the product that they break."""
