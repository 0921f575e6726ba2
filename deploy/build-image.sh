#!/bin/sh
# Build Sweepbot's image, and list its Python packages in CycloneDX:
#
#   deploy/build-image.sh [TAG]     build/image.tar (OCI), build/sbom.json; TAG defaults to sweepbot:VERSION
#   deploy/build-image.sh --search [TAG]  the search service's: build/search.tar; TAG defaults to sweepbot-search:VERSION
#   deploy/build-image.sh --check   build twice without a cache; fail unless both have the same digest
#   deploy/build-image.sh --sbom    only build/sbom.json
#
# BASE=IMAGE@DIGEST builds on another base, such as a mirror's copy, or one with your CA.
# The image needs Docker with BuildKit 0.13 or newer that writes OCI files: with the containerd image store, or after
# `docker buildx create --use`. The list needs uv. Equal inputs are this commit, the base by digest, the locked packages,
# and the version of git that Debian has at that time.
set -eu
cd "$(dirname "$0")/.."
mkdir -p build

case "${BASE:-@sha256:}" in
*@sha256:*) ;;
*)
  echo "build-image: BASE=$BASE has no digest, so two builds could differ. Set BASE=$BASE@sha256:..." >&2
  exit 1
  ;;
esac

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)

sbom() {
  uv tool run --from cyclonedx-bom==7.5.0 cyclonedx-py requirements requirements/run.txt \
    --pyproject pyproject.toml --output-reproducible --output-file build/sbom.json
}

# Prints the digest. $1: file name, $2: tag; further arguments are options of the build.
image() {
  file=$1 tag=$2
  shift 2
  epoch=$(git log -1 --format=%ct)
  docker buildx build "$@" --quiet --provenance=false --build-arg BASE --build-arg "SOURCE_DATE_EPOCH=$epoch" \
    --metadata-file build/metadata.json --output "type=oci,dest=build/$file,name=$tag,rewrite-timestamp=true" . >/dev/null
  sed -n 's/.*"containerimage.digest": "\(sha256:[0-9a-f]*\)".*/\1/p' build/metadata.json
}

case "${1:-}" in
--sbom) sbom ;;
--search) image search.tar "${2:-sweepbot-search:$version}" --target search ;;
--check)
  first=$(image first.tar sweepbot:check --no-cache)
  second=$(image second.tar sweepbot:check --no-cache)
  if [ -z "$first" ] || [ "$first" != "$second" ]; then
    echo "build-image: two builds differ: '$first' and '$second'. Compare build/first.tar and build/second.tar with diffoscope." >&2
    exit 1
  fi
  echo "$first"
  ;;
*)
  sbom
  image image.tar "${1:-sweepbot:$version}"
  ;;
esac
