/* Stands for Open MPI's library when the back end is linked for other machines: its names,
 * and nothing else. No rank ever loads it, as the program's own libmpi.so.40 is there. */
#define DATA(name) char name[1]

DATA(ompi_mpi_byte);
DATA(ompi_mpi_comm_null);
DATA(ompi_mpi_comm_self);
DATA(ompi_mpi_comm_world);
DATA(ompi_mpi_datatype_null);
DATA(ompi_mpi_errors_return);
DATA(ompi_mpi_group_null);
DATA(ompi_mpi_info_null);
DATA(ompi_mpi_int);
DATA(ompi_mpi_op_null);
DATA(ompi_request_null);

void OMPI_C_MPI_COMM_NULL_COPY_FN(void) {}
void OMPI_C_MPI_COMM_NULL_DELETE_FN(void) {}
