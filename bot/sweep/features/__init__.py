"""What a sweep can do beside the plain search. No feature imports another one, nor the plain sweep."""
