#!/bin/sh
# Admit the nodes whose public keys are named, and start a run on the SuperLink.
#   run.sh SUPERLINK CERTIFICATE 'RUN-CONFIG' KEY.pub...
set -eu
superlink=$1 certificate=$2 config=$3
shift 3
mkdir -p "$FLWR_HOME"
printf '[superlink.pca]\naddress = "%s"\nroot-certificates = "%s"\n' "$superlink" "$certificate" >"$FLWR_HOME/config.toml"
for key in "$@"; do
    flwr supernode register "$key" pca || echo "$key is registered already, or cannot be"
done
flwr supernode list pca
flwr run "$(dirname "$0")" pca --stream --run-config "$config"
flwr ls pca
