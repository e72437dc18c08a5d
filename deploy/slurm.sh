#!/bin/bash
# A fit on SLURM: one Ray over all nodes of the job, the fit on the first of them. See docs/scaling.md.
#
#   sbatch deploy/slurm.sh /shared/likes /shared/model
#
# Both paths, the environment and the checkpoints must be on a file system that all nodes share. Nodes are taken
# whole: `ray symmetric-run` does not work beside another Ray on the same node. It is of Ray 2.49 or later.
#SBATCH --job-name=considerate
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=0
#SBATCH --exclusive
#SBATCH --time=04:00:00
#SBATCH --requeue
#SBATCH --open-mode=append
set -euo pipefail

data=${1:?the folder of Parquet files}
model=${2:?the folder of the model}
checkpoints=${CHECKPOINTS:-$model.checkpoints}

# The environment that has considerate[ray], for instance:
#   module load python/3.11
#   source /shared/considerate/bin/activate

export RAY_USAGE_STATS_ENABLED=0
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=300 # seconds that nodes wait for one another; 30 if not set

# The first node is the head; of its addresses the first IPv4 one.
mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
ip=
for address in $(srun --nodes=1 --ntasks=1 --nodelist="${nodes[0]}" hostname --ip-address); do
  if [[ -z $ip && $address =~ ^[0-9]+(\.[0-9]+){3}$ ]]; then ip=$address; fi
done
: "${ip:?${nodes[0]} has no IPv4 address}"

# A requeued job goes on from the last checkpoint.
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --cpus-per-task="$SLURM_CPUS_PER_TASK" \
  ray symmetric-run --address "$ip:6379" --min-nodes "$SLURM_JOB_NUM_NODES" --num-cpus="$SLURM_CPUS_PER_TASK" -- \
  considerate fit "$data" --backend ray --address auto \
  --checkpoint "$checkpoints" --checkpoint-every 5 --resume --sharded -o "$model"
