#!/bin/sh
# Makes the secrets of a cell in base/secrets/, from which kustomize makes the Secrets; git ignores them.
#   infra/kubernetes/secrets.sh postgresql+psycopg://USER:PASSWORD@HOST/DATABASE
# Prints the operator's token, which is kept nowhere else; that of the agents is for fetching uploads. Secrets that are there already stay as they are.
set -eu
umask 077
random() { od -An -tx1 -N32 /dev/urandom | tr -d ' \n'; }

case "${1-}" in
  postgresql+psycopg://*) ;;
  *)
    echo "error: ${1:-no database} given; expected the SQLAlchemy URL of a PostgreSQL database  try: $0 postgresql+psycopg://USER:PASSWORD@HOST/DATABASE" >&2
    exit 2
    ;;
esac
folder=$(dirname "$0")/base/secrets
mkdir -p "$folder"
echo "SANJAYA_DATABASE=$1" > "$folder/database.env"
[ -e "$folder/cell.key" ] || random > "$folder/cell.key"
if [ ! -e "$folder/tokens.yaml" ]; then
  token=$(random)
  digest=$(printf %s "$token" | sha256sum | cut -d' ' -f1)
  printf 'tokens:\n  - name: operator\n    sha256: %s\n    scopes: [admin]\n' "$digest" > "$folder/tokens.yaml"
  echo "SANJAYA_TOKEN=$token"
fi
if [ ! -e "$folder/agent.token" ]; then
  random > "$folder/agent.token"
  digest=$(sha256sum < "$folder/agent.token" | cut -d' ' -f1)
  printf '  - name: agents\n    sha256: %s\n    scopes: [read]\n' "$digest" >> "$folder/tokens.yaml"
fi
